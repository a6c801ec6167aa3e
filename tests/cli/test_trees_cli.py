"""Trees of models from the command line: they mean what the flags mean, and what cannot be meant is refused."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ringfence.cli import console
from ringfence.models.grammar import split_models

Call = Callable[..., Result]

SMALL = ("--sigma", "0.5", "--limit", "3", "--n", "200", "--batch", "100")
PAIR = "lanes(default:0, default:1, votes=none, singles=true)"
THREE = "default:0, default:1, default:2"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "default", "--members", "default,default:1"), "--model"),
        (("--weights", "some.safetensors", "--members", "default,default:1"), "--weights"),
        (("--vote", "hard"), "--vote"),
        (("--weights-on", "softmax"), "--weights-on"),
    ],
)
def test_options_that_would_go_unused_are_refused(
    call: Call, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    told = call("certify", *words, *SMALL, "--out", tmp_path / "run", code=2).stderr
    assert said in told
    assert "members" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "model",
    [
        "default",
        "soft(default:0, default:1)",
        "lanes(default:0, default:1)",
        "lanes(default:0, default:1, votes=none, singles=true, consensus=1)",
        "lanes(default:0, votes=none, singles=true)",
        "normalize(default, mean=0, std=1)",
    ],
)
def test_after_smoothing_takes_single_members_only(call: Call, tmp_path: Path, model: str) -> None:
    words = ("certify", "--procedure", "after-smoothing", "--model", model, *SMALL, "--out", tmp_path / "run")
    told = call(*words, code=2).stderr
    assert "lanes(A, B, votes=none, singles=true)" in told
    assert "--members" in told


def test_after_smoothing_of_a_tree_is_that_of_its_members(call: Call, tmp_path: Path) -> None:
    both = (("--members", "default:0,default:1"), ("--model", PAIR))
    common = ("--procedure", "after-smoothing", *SMALL, "--quiet", "--json")
    found = [
        json.loads(call("certify", *words, *common, "--out", tmp_path / str(k)).stdout) for k, words in enumerate(both)
    ]
    assert found[0]["acr"] == found[1]["acr"] > 0
    counts = json.loads((tmp_path / "1" / "config.json").read_text())
    assert counts["classifier"]["lanes"] == [{"name": "main"}]
    split = call("certify", "--model", PAIR, *common[:-2], "--split-alpha", "--out", tmp_path / "2", code=2)
    assert "--split-alpha" in split.stderr


def test_predicting_with_aces_claims_no_radius(call: Call, tmp_path: Path) -> None:
    aces = "aces(certify=default, core=default:1, theta=0.3/0.7)"
    told = call("predict", "--model", aces, *SMALL, "--out", tmp_path / "run").stderr
    assert "guarantee" in told
    assert "radius" not in told


@pytest.mark.parametrize("procedure", ["fixed", "two-sided"])
def test_an_aces_tree_prints_its_thresholds(call: Call, tmp_path: Path, procedure: str) -> None:
    tree = "aces(certify=default, core=default:1, theta=0:1:0.02)"
    one = call("certify", "--model", tree, "--procedure", procedure, *SMALL, "--out", tmp_path / "one")
    assert "natural%" in one.stdout
    assert "Certified selection rate" in one.stdout
    assert len(one.stdout.splitlines()) < 50
    assert "choose ONE theta" in one.stderr
    stored = json.loads((tmp_path / "one" / "config.json").read_text())["procedure"]
    assert stored["lower_share"] == (0.5 if procedure == "two-sided" else 1.0)


@pytest.mark.parametrize(
    ("model", "lanes"), [(f"consensus({THREE}, agree=2)", 1), (f"lanes({THREE}, consensus=1/2)", 3)]
)
def test_consensus_in_a_tree_shows_what_it_saved(call: Call, tmp_path: Path, model: str, lanes: int) -> None:
    shown = call("certify", "--model", model, *SMALL, "--out", tmp_path / "run").stdout
    assert "KCR%" in shown
    assert "fwd" in shown
    runs = json.loads(call("metrics", tmp_path / "run", "--json").stdout)["runs"]
    assert len(runs) == lanes
    assert sum("kcr" in one for one in runs) == max(1, lanes - 1)


ACES = "aces(certify=default, core=default:1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "aces(default, default:1)"), "Give them as certify=A, core=B"),
        (("--model", "aces(certify=default)"), "theta=0:1:0.01)"),
        (("--model", f"{ACES}, theta=2)"), "aces(theta=): must lie in [0, 1]"),
        (("--model", f"{ACES}, theta=x)"), "Write e.g. theta=0.2/0.3."),
        (("--model", "lanes(default, default:1, votes=foo)"), "lanes(votes=): must be one of"),
        (("--model", "patches(default, size=28, count=1, noise=resized)"), "patches(noise=): resized noise needs"),
        (("--model", "patches(default, size=28, noise=foo)"), "Write e.g. noise=input."),
        (("--model", "patches(default, size=28, reduce=foo)"), "patches(reduce=): must be one of mean, max"),
        (("--model", "patches(default, size=40)"), "patches(size=): must not be larger"),
        (("--model", "soft()"), "takes at least 1 model; got 0. Write soft(MODEL, MODEL, ..."),
        (("--model", "soft (default, default:1)"), "no space before ("),
        (("--model", "soft(hard (default, default:1), default)"), "Write hard(...)"),
        (("--model", "foo"), "must be default, zoo:NAME"),
        (("--model", "foo"), "lanes, lifted, max-margin"),
        (("--members", "soft(a"), "soft(a: needs a comma or the closing parenthesis of soft("),
        (("--members", "a,b)"), "a,b): divides models by commas"),
        (("--members", f"default,{ACES})"), "several thetas"),
        (("--members", "default,lanes(default, default:1)"), "one with lanes: soft-2"),
        (("--radius", "0.5", "--larger", "0.25"), "--larger: must be above the radius 0.5"),
        (("--larger", "0.25"), "--larger: is no setting of the fixed procedure"),
    ],
)
def test_mistakes_are_named_as_they_were_written(call: Call, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    told = call("certify", *words, *SMALL, "--out", tmp_path / "run", code=2).stderr
    assert said in told
    assert "Correct it" not in told


def test_ranked_members_can_be_pasted(call: Call) -> None:
    options = ("--sigma", "0.5", "--limit", "3", "--draws", "2")
    shown = call("rank", "--members", "soft(default:0, default:1),default:2", *options).stdout
    line = next(line for line in shown.splitlines() if line.startswith("--members"))
    words = shlex.split(line)
    assert len(words) == 2
    assert sorted(split_models(words[1])) == ["default:2", "soft(default:0, default:1)"]


class Terminal(io.StringIO):
    """Takes what is written, as a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_messages_break_between_words_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, kind: type[io.StringIO]
) -> None:
    heard = kind()
    monkeypatch.setattr(sys, "stderr", heard)
    monkeypatch.setattr(console.remarks, "_width", 40)
    path = "/a/folder/whose/name/is/longer/than/the/terminal"
    words = ["no", "perturbation", "of", "l2", "norm", "below", "its", "radius", "changes", "the", "answer", path]
    console.remark(" ".join(words))
    lines = heard.getvalue().splitlines()
    assert heard.getvalue().split() == words
    if kind is Terminal:
        assert len(lines) == 3
        assert all(len(line.rstrip()) <= 40 for line in lines[:2])
        assert lines[2].strip() == path
    else:
        assert len(lines) == 1


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ("consensus(aces(certify=default, core=default:1), default, agree=1)", "consensus(...): is made of single"),
        ("consensus(default, default:1)", "consensus(...): needs agree"),
        ("weighted(lanes(default, votes=soft/hard), weights=1)", "weighted(...): is made of single classifiers"),
    ],
)
def test_a_node_is_not_called_like_an_option(call: Call, tmp_path: Path, tree: str, told: str) -> None:
    said = call("certify", *SMALL, "--model", tree, "--out", tmp_path / "run", code=2).stderr
    assert said.startswith(f"error: {told}")

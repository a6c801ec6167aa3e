"""Ensembles from the command line: certify, rank, weights, variance, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ringfence.noise import NOISES, Gaussian

Call = Callable[..., Result]

MEMBERS = "default:0,default:1,default:2"
SMALL = ("--sigma", "0.5", "--limit", "3", "--n", "200", "--batch", "100", "--quiet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One pass with every kind of lane, alpha split."""
    from typer.testing import CliRunner

    from ringfence.cli import app

    out = tmp_path_factory.mktemp("ensembles") / "lanes"
    votes = ("--vote", "soft,softmax,hard,max-margin,weighted", "--member-weights", "0.5,0.3,0.2")
    options = ("--consensus", "1,2,3", "--prefixes", "--singles", "--split-alpha", "--weights-on", "softmax")
    words = ["certify", "--members", MEMBERS, *votes, *options, *SMALL, "--out", str(out)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return out


def test_one_pass_gives_every_lane_with_its_cost(call: Call, run: Path) -> None:
    runs = {one["lane"]: one for one in json.loads(call("metrics", run, "--json").stdout)["runs"]}
    assert len(runs) == 3 + 4 * 3 + 1 + 3
    for agree, fewest in ((1, 1), (2, 2), (3, 3)):
        lane = runs[f"consensus-{agree}"]
        assert fewest <= lane["forwards_per_draw"] <= 3
        assert lane["kcr"] == pytest.approx(100 if agree in (1, 3) else 100 * (3 - lane["forwards_per_draw"]))
    assert "kcr" not in runs["soft-3"]
    summary = json.loads((run / "summary.json").read_text())
    assert {one["lane"]: one.get("kcr") for one in summary["lanes"]} == {k: v.get("kcr") for k, v in runs.items()}
    settings = json.loads((run / "config.json").read_text())
    assert settings["procedure"]["alpha"] == pytest.approx(0.001 / 19)
    assert "on=softmax" in settings["classifier"]["tree"]
    call("verify", run)


def test_the_best_lane_of_each_input_needs_split_alpha(call: Call, run: Path, tmp_path: Path) -> None:
    every = json.loads(call("metrics", run, "--json").stdout)["runs"]
    best = json.loads(call("metrics", run, "--best-lane", "--json").stdout)["runs"]
    assert len(best) == 1
    assert best[0]["count"] == 3
    assert best[0]["acr"] >= max(one["acr"] for one in every) or best[0]["certified_accuracy"]["0.0"] < 1
    whole = tmp_path / "whole"
    call("certify", "--members", MEMBERS, "--vote", "soft,hard", *SMALL, "--out", whole)
    refused = call("metrics", whole, "--best-lane", code=2)
    assert "--split-alpha" in refused.stderr


def test_consensus_alone_skips_work_and_time_is_compared(call: Call, tmp_path: Path) -> None:
    call("certify", "--members", MEMBERS, "--consensus", "2", *SMALL, "--out", tmp_path / "two")
    call("certify", "--members", MEMBERS, *SMALL, "--out", tmp_path / "full")
    shown = call("metrics", tmp_path / "two", "--reference", tmp_path / "full", "--json")
    entry = json.loads(shown.stdout)["runs"][0]
    assert 0 < entry["time_rf"] < 1000
    assert 2 <= entry["forwards_per_draw"] < 3
    assert "KCR%" in call("metrics", tmp_path / "two").stdout


def test_lanes_have_no_time_of_their_own(call: Call, run: Path) -> None:
    assert "one lane" in call("metrics", run, "--reference", run, code=2).stderr


def test_rank_orders_members_by_noisy_accuracy(call: Call) -> None:
    options = ("--sigma", "0.5", "--first", "1", "--skip", "5", "--limit", "12", "--draws", "4")
    found = json.loads(call("rank", "--members", MEMBERS, *options, "--json").stdout)
    accuracy = [one["accuracy"] for one in found["ranking"]]
    assert accuracy == sorted(accuracy, reverse=True)
    assert sorted(found["members"].split(",")) == sorted(MEMBERS.split(","))
    assert found["inputs"] == 12
    shown = call("rank", "--members", MEMBERS, *options).stdout
    assert f"--members {found['members']}" in shown


def test_weights_are_ready_to_paste(call: Call) -> None:
    options = ("--sigma", "0.5", "--skip", "5", "--limit", "12", "--draws", "4", "--on", "softmax", "--step", "0.2")
    found = json.loads(call("weights", "--members", MEMBERS, *options, "--json").stdout)
    losses = {one["method"]: one["loss"] for one in found["learned"]}
    assert losses["gradient"] <= losses["equal"] + 1e-6
    assert all(sum(one["weights"]) == pytest.approx(1) for one in found["learned"])
    shown = call("weights", "--members", MEMBERS, *options).stdout
    assert "--member-weights " in shown
    assert "--weights-on softmax" in shown


def test_variance_predicts_and_measures(call: Call) -> None:
    options = ("--sigma", "0.5", "--limit", "2", "--draws", "200", "--n", "200", "--k", "1,3")
    found = json.loads(call("variance", "--members", MEMBERS, *options, "--json").stdout)
    one, three = found["sizes"]
    assert one["variance_ratio"]["predicted"] == one["variance_ratio"]["measured"] == 1
    for name in ("variance_ratio", "margin_variance_ratio"):
        assert three[name]["predicted"] == pytest.approx(three[name]["measured"], abs=0.15)
        assert 0.3 < three[name]["predicted"] < 1
    assert three["success"]["predicted"] == pytest.approx(three["success"]["measured"], abs=0.05)


def test_conditions_judge_the_votes_of_given_members(call: Call) -> None:
    options = ("--members", MEMBERS, "--sigma", "0.5", "--radius", "0.1", "--limit", "2", "--draws", "20")
    found = json.loads(call("conditions", *options, "--json").stdout)
    assert found["inputs"] == len(found["each"]) == sum(found["softmax"].values()) == 2
    assert {one["softmax"] for one in found["each"]} <= {"robust", "undecided"}
    assert -1 <= found["cosine"] <= 1
    shown = call("conditions", *options)
    assert "max-margin vote:" in shown.stdout
    assert "never a certificate" in shown.stderr


BAD = {
    "no members": (("certify", "--members", ",", *SMALL), "at least one member"),
    "K > k": (("certify", "--members", MEMBERS, "--consensus", "4", *SMALL), "number of members, 3"),
    "unknown vote": (("certify", "--members", MEMBERS, "--vote", "loud", *SMALL), "--vote"),
    "weights alone": (("certify", "--members", MEMBERS, "--member-weights", "1,1,1", *SMALL), "go together"),
    "weighted alone": (("certify", "--members", MEMBERS, "--vote", "weighted", *SMALL), "go together"),
    "too few weights": (
        ("certify", "--members", MEMBERS, "--vote", "weighted", "--member-weights", "1,1", *SMALL),
        "member weights: needs one weight per member, 3",
    ),
    "zero weights": (
        ("certify", "--members", MEMBERS, "--vote", "weighted", "--member-weights", "0,0,0", *SMALL),
        "not all zero",
    ),
    "weights on what": (("certify", "--members", MEMBERS, "--weights-on", "softmax", *SMALL), "--weights-on"),
    "no ensemble": (("certify", "--consensus", "2", *SMALL), "--members"),
    "rank nobody": (("rank", "--members", ",", "--sigma", "0.5"), "at least one member"),
    "rank nothing": (("rank", "--members", MEMBERS, "--sigma", "0.5", "--first", "500"), "--first"),
    "rank without draws": (("rank", "--members", MEMBERS, "--sigma", "0.5", "--limit", "2", "--draws", "0"), "draws"),
    "rank without noise": (("rank", "--members", MEMBERS, "--sigma", "0"), "sigma"),
    "weights of what": (("weights", "--members", MEMBERS, "--sigma", "0.5", "--on", "scores"), "--on"),
    "weights how": (("weights", "--members", MEMBERS, "--sigma", "0.5", "--method", "guess"), "--method"),
    "grid step": (
        ("weights", "--members", MEMBERS, "--sigma", "0.5", "--limit", "2", "--step", "0.3"),
        "must divide 1",
    ),
    "variance draws": (("variance", "--members", MEMBERS, "--sigma", "0.5", "--draws", "1"), "must be at least 2"),
    "conditions of one": (
        ("conditions", "--members", "default:0", "--sigma", "0.5", "--radius", "0.1", "--limit", "1"),
        "at least two members",
    ),
    "conditions nowhere": (("conditions", "--members", MEMBERS, "--sigma", "0.5", "--radius", "0"), "--radius"),
    "variance of one": (("variance", "--members", "default:0", "--sigma", "0.5"), "at least two"),
    "variance of too many": (("variance", "--members", MEMBERS, "--sigma", "0.5", "--k", "4"), "--k"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_a_message(call: Call, tmp_path: Path, case: str) -> None:
    words, message = BAD[case]
    out = ("--out", tmp_path / "run") if words[0] == "certify" else ()
    assert message in call(*words, *out, code=2).stderr


def test_members_with_different_classes_are_refused(call: Call, models: Path, dots: Path, tmp_path: Path) -> None:
    models.write_text(models.read_text() + "\ndef three():\n    return build(3)\n")
    members = f"{models}:build,{models}:three"
    words = ("certify", "--members", members, "--data", dots, "--sigma", "0.5", "--n", "100", "--quiet")
    assert "one K" in call(*words, "--out", tmp_path / "run", code=2).stderr


def test_a_member_that_is_never_valid_is_refused(call: Call, models: Path, dots: Path, tmp_path: Path) -> None:
    members = f"{models}:nan,{models}:nan"
    words = ("certify", "--members", members, "--data", dots, "--sigma", "0.5", "--n", "100", "--quiet")
    assert "finite scores" in call(*words, "--out", tmp_path / "run", code=2).stderr


def test_members_are_ranked_under_the_noise_that_was_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NOISES, "faint", lambda scale: Gaussian(scale / 100))
    options = ("rank", "--members", MEMBERS, "--sigma", 5, "--limit", 5, "--draws", 2, "--json")
    loud, faint = (json.loads(call(*options, *more).stdout) for more in ((), ("--noise", "faint")))
    assert loud["ranking"][0]["accuracy"] < faint["ranking"][0]["accuracy"]
    assert "--noise: must be one of" in call(*options, "--noise", "nosuch", code=2).stderr

"""``ringfence aces``: a grid run, its frontier with pictures and baseline, composition from logs and run folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ringfence.cli import app

Call = Callable[..., Result]
LOGS = Path(__file__).parents[1] / "fixtures" / "aces"
CERTIFICATION, CORE = LOGS / "cifar10_gaussian_025_certification", LOGS / "lanet_core_prediction"
SMALL = ["--sigma", "1.0", "--skip", "100", "--n", "300", "--batch", "100", "--quiet"]
KEYS = {"theta", "natural_accuracy", "acr", "abstention", "certified_accuracy", "certified_selection_rate"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A grid run, the certification network alone at two sigmas, and a known-radius run; do not write into them."""
    folder = tmp_path_factory.mktemp("aces")
    words = {
        "grid": ["aces", "run", "--core", "default:1", "--thetas", "0:1:0.05", *SMALL],
        "alone": ["certify", *SMALL],
        "quieter": ["certify", *SMALL, "--sigma", "0.5"],
        "known": ["aces", "run", "--core", "default:1", "--thetas", "0.1,0.3", "--radius", "0.2", *SMALL],
    }
    for name, command in words.items():
        result = CliRunner().invoke(app, [*command, "--out", str(folder / name)])
        assert result.exit_code == 0, result.output
    return {name: folder / name for name in words}


def test_the_authors_logs_compose_to_json(call: Call) -> None:
    words = ["aces", "compose", "--certification", CERTIFICATION, "--selection", LOGS, "--core", CORE]
    found = json.loads(call(*words, "--radii", "0,0.25,0.5,0.75", "--json").stdout)["thetas"]
    assert [entry["theta"] for entry in found] == [0.2, 0.5]
    assert all(set(entry) == KEYS for entry in found)
    assert found[1]["natural_accuracy"] == pytest.approx(0.854)
    assert found[1]["acr"] == pytest.approx(0.397, abs=0.001)
    assert found[1]["certified_accuracy"]["0.25"] == pytest.approx(0.56)
    assert found[1]["certified_selection_rate"]["0.5"] == pytest.approx(0.528)
    assert "Certified selection rate" in call(*words).stdout


def test_a_run_folder_in_place_of_every_component(call: Call, runs: dict[str, Path]) -> None:
    grid = runs["grid"]
    words = ["aces", "compose", "--certification", runs["alone"], "--selection", grid, "--core", grid, "--json"]
    found = json.loads(call(*words).stdout)["thetas"]
    assert len(found) == 21
    alone = json.loads(call("metrics", runs["alone"], "--json").stdout)["runs"][0]
    assert found[-1]["acr"] == pytest.approx(alone["acr"], rel=1e-3)
    assert found[0]["acr"] == 0
    assert found[0]["certified_selection_rate"]["0.0"] == 0


def test_the_frontier(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    words = ["aces", "frontier", runs["grid"], "--baseline", runs["alone"], "--baseline", runs["quieter"]]
    words += ["--out", tmp_path / "figures"]
    text = call(*words, "--accuracy", "0.5", "--acr", "99").stdout
    assert "natural accuracy >= 0.5: theta" in text
    assert "ACR >= 99.0: no theta reaches it" in text
    assert "baseline: sigma 0.5" in text
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "entropy.png",
        "frontier.png",
        "selection.png",
    ]
    found = json.loads(call(*words, "--json").stdout)
    assert [entry["theta"] for entry in found["thetas"]] == [round(0.05 * k, 2) for k in range(21)]
    assert [entry["sigma"] for entry in found["baseline"]] == [1.0, 0.5]
    assert found["baseline"][0]["acr"] == pytest.approx(found["thetas"][-1]["acr"], rel=1e-6)


def test_runs_verify_continue_and_know_their_radius(call: Call, runs: dict[str, Path]) -> None:
    for name in ("grid", "known"):
        assert "every claim follows" in call("verify", runs[name]).output
    again = ["aces", "run", "--core", "default:1", "--thetas", "0.1,0.3", "--radius", "0.2", *SMALL, "--json"]
    found = json.loads(call(*again, "--out", runs["known"]).stdout)["thetas"]
    assert [entry["acr"] for entry in found] == [None, None]
    assert set(found[0]["certified_accuracy"]) == {"0.0", "0.2"}
    assert "needs natural accuracy and ACR" in call("aces", "frontier", runs["known"], code=2).output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--thetas", "0:1.5:0.1"], "thetas: must lie in [0, 1]"),
        (["--thetas", "0:1"], "must be start:stop:step"),
        (["--thetas", "x"], "must be numbers"),
        (["--procedure", "staged"], "must be one of fixed, two-sided, sequential, predict"),
        (["--select", "default:2"], "must have two outputs"),
        (["--form", "loose"], "form"),
        (["--core", "FACTORY"], "must have the certification network's 10 classes"),
    ],
)
def test_bad_runs_are_refused(call: Call, words: list[str], message: str, tmp_path: Path) -> None:
    three = "from torch import nn\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))\n"
    (tmp_path / "three.py").write_text(three)
    words = [f"{tmp_path / 'three.py'}:build" if word == "FACTORY" else word for word in words]
    words = words if "--core" in words else [*words, "--core", "default:1"]
    found = call("aces", "run", *SMALL, "--limit", "1", *words, "--out", tmp_path / "run", code=2)
    assert message in found.output


def test_bad_components_are_refused(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    lines = CORE.read_text().splitlines()
    (tmp_path / "core").write_text("\n".join([*lines[:3], *lines[4:]]) + "\n")
    words = ["aces", "compose", "--certification", CERTIFICATION, "--selection", LOGS]
    assert "the first is index 40" in call(*words, "--core", tmp_path / "core", code=2).output
    classes = tmp_path / "x_selection_0.5"
    classes.write_text(CERTIFICATION.read_text())
    swapped = ["aces", "compose", "--certification", CERTIFICATION, "--selection", classes, "--core", CORE]
    assert "predict must be 1, 0 or -1" in call(*swapped, code=2).output
    assert "must be an ACES run" in call("aces", "frontier", runs["alone"], code=2).output

"""``ringfence aces``: a grid run, its frontier with pictures and baseline, composition from logs and run folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ringfence.analysis.aces_runs import AcesRun
from ringfence.cli import app
from ringfence.store import RunFolder

Call = Callable[..., Result]
LOGS = Path(__file__).parents[1] / "fixtures" / "aces"
CERTIFICATION, CORE = LOGS / "cifar10_gaussian_025_certification", LOGS / "lanet_core_prediction"
FEW = ["--skip", "100", "--n", "300", "--batch", "100", "--quiet"]
SMALL = ["--sigma", "1.0", *FEW]
KEYS = {"theta", "alpha", "sound", "natural_accuracy", "acr", "abstention", "certified_accuracy"}
KEYS |= {"certified_selection_rate"}


def grid(theta: str, **parts: str) -> str:
    """The tree of the embedded networks with these thresholds."""
    told = {"certify": "default", "core": "default:1"} | parts | {"theta": theta}
    return f"aces({', '.join(f'{key}={value}' for key, value in told.items())})"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A grid run, the certification network alone at two sigmas, and a known-radius run; do not write into them."""
    folder = tmp_path_factory.mktemp("aces")
    words = {
        "grid": ["certify", "--model", grid("0:1:0.05"), *SMALL],
        "alone": ["certify", *SMALL],
        "quieter": ["certify", *FEW, "--sigma", "0.5"],
        "known": ["certify", "--model", grid("0.1/0.3"), "--radius", "0.2", *SMALL],
        "paper": ["certify", "--model", grid("1"), "--radius", "0.2", "--form", "paper", *SMALL],
        "predict": ["certify", "--model", grid("0/1"), "--procedure", "predict", *SMALL],
        "answers": ["certify", *SMALL, "--procedure", "predict"],
        "target": ["certify", *SMALL, "--radius", "0.2"],
    }
    for name, command in words.items():
        result = CliRunner().invoke(app, [*command, "--out", str(folder / name)])
        assert result.exit_code == 0, result.output
    return {name: folder / name for name in words}


def test_an_alpha_whose_half_is_too_small_is_told_of_the_run(call: Call, tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("certify", "--model", grid("0/1"), *SMALL, "--limit", 1, "--alpha", "1e-200", "--out", run)
    said = call("aces", "compose", "--certification", run, "--selection", run, "--core", run, code=2).stderr
    assert f"{run}: components have half of alpha each, at least 1e-200; got a run with alpha 1e-200" in said
    assert "ringfence aces frontier" in said
    call("aces", "frontier", run)


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


def test_components_of_runs_bring_their_norm_data_and_alpha(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    words = ["aces", "compose", "--selection", runs["grid"], "--certification"]
    smoothed = json.loads(call(*words, runs["alone"], "--core", runs["alone"], "--json").stdout)["thetas"]
    assert {one["alpha"] for one in smoothed} == {
        0.0025
    }  # alpha of the class, half of the selector's, alpha of the core
    fewer = ["certify", "--sigma", "1.0", "--skip", "100", "--n", "50", "--batch", "100", "--quiet", "--out"]
    call(*fewer, tmp_path / "laplace", "--noise", "laplace")
    told = call(*words, tmp_path / "laplace", "--core", runs["grid"], code=2).stderr
    assert "must have radii in l1" in " ".join(told.split())


def test_logs_and_run_folders_mix(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    grid = AcesRun.read(RunFolder.open(runs["grid"])).selection()[0.2]
    assert grid.radius is not None
    assert grid.natural is not None
    columns = zip(grid.idx, grid.predict, grid.radius, grid.natural, strict=True)
    rows = ["idx\tpredict\tradius\tunperturbed predict", *("\t".join(map(str, row)) for row in columns)]
    (tmp_path / "other_selection_0.22").write_text("\r\n".join(rows))
    words = ["aces", "compose", "--certification", runs["grid"], "--core", runs["grid"], "--selection", runs["grid"]]
    found = json.loads(call(*words, "--selection", tmp_path / "other_selection_0.22", "--json").stdout)
    assert set(found) == {"thetas"}
    by_theta = {entry.pop("theta"): entry for entry in found["thetas"]}
    assert list(by_theta) == sorted([0.22, *(round(0.05 * k, 2) for k in range(21))])
    unproved = {"alpha": None, "sound": False}  # a log does not say how often it may fail
    assert by_theta[0.22] == by_theta[0.2] | unproved != by_theta[0.2]
    assert (
        "alpha unknown: a component does not say; no proven guarantee"
        in call(*words, "--selection", tmp_path / "other_selection_0.22").stdout
    )
    twice = call(*words, "--selection", runs["grid"], code=2).output
    assert "each theta stands once" in twice


def test_components_know_what_their_runs_can_tell(call: Call, runs: dict[str, Path]) -> None:
    words = ["aces", "compose", "--selection", runs["grid"], "--core", runs["grid"], "--certification"]
    known = json.loads(call(*words, runs["target"], "--json").stdout)["thetas"][-1]
    assert (known["acr"], known["natural_accuracy"]) == (None, None)
    assert set(known["certified_accuracy"]) == {"0.0", "0.2"}
    assert "only tried to prove the radius 0.2" in call(*words, runs["target"], "--radii", "0.5", code=2).output
    assert "must have radii" in call(*words, runs["answers"], code=2).output
    assert "components need a fixed number of draws" in call(*words, runs["known"], code=2).output


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
    assert set(found["baseline"][0]) == KEYS - {"theta"} | {"sigma"}
    assert found["baseline"][0]["acr"] == pytest.approx(found["thetas"][-1]["acr"], rel=1e-6)


def test_without_a_folder_for_pictures_the_frontier_is_printed_alone(call: Call, runs: dict[str, Path]) -> None:
    """A run folder is evidence: nothing is put into it that nobody asked for."""
    before = sorted(runs["grid"].rglob("*"))
    told = call("aces", "frontier", runs["grid"], "--accuracy", "0.5")
    assert "natural accuracy >= 0.5: theta" in told.stdout
    assert "written" not in told.stderr
    assert sorted(runs["grid"].rglob("*")) == before


def test_runs_verify_continue_and_know_their_radius(call: Call, runs: dict[str, Path]) -> None:
    for name in ("grid", "known"):
        assert "every claim follows" in call("verify", runs[name]).output
    again = ["certify", "--model", grid("0.1/0.3"), "--radius", "0.2", *SMALL, "--json"]
    told = json.loads(call(*again, "--out", runs["known"]).stdout)
    assert (told["run"], len(told["runs"])) == (str(runs["known"]), 2), "and what every run tells"
    assert told["draws"] > 0
    found = told["thetas"]
    assert [entry["acr"] for entry in found] == [None, None]
    assert set(found[0]["certified_accuracy"]) == {"0.0", "0.2"}
    for name in ("known", "predict"):
        assert "needs natural accuracy and ACR" in call("aces", "frontier", runs[name], code=2).output


def test_what_a_run_without_all_radii_tells(call: Call, runs: dict[str, Path]) -> None:
    words = ["certify", *SMALL, "--json"]
    paper = [*words, "--model", grid("1"), "--radius", "0.2", "--form", "paper", "--out", runs["paper"]]
    known = json.loads(call(*paper).stdout)["thetas"]
    assert known[0]["certified_selection_rate"] == {"0.0": 1.0, "0.2": 1.0}
    predict = [*words, "--model", grid("0/1"), "--procedure", "predict", "--out", runs["predict"]]
    none, every = json.loads(call(*predict).stdout)["thetas"]
    assert (none["certified_selection_rate"], every["certified_selection_rate"]) == ({"0.0": 0.0}, {"0.0": 1.0})
    assert none["acr"] is every["acr"] is None
    assert none["natural_accuracy"] == none["certified_accuracy"]["0.0"]


def test_bad_wishes_for_the_frontier_are_refused(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    words = ["aces", "frontier", runs["grid"], "--out", tmp_path / "figures"]
    assert "accuracy: must lie in [0, 1]; got 95" in call(*words, "--accuracy", "95", code=2).output
    assert "acr: must be finite and not negative" in call(*words, "--acr", "-1", code=2).output
    for name in ("answers", "target"):
        assert "a baseline has radii from a fixed" in call(*words, "--baseline", runs[name], code=2).output
    call("certify", *SMALL, "--limit", "2", "--out", tmp_path / "fewer")
    fewer = call(*words, "--baseline", tmp_path / "fewer", code=2).output
    assert "missing, the first is index" in fewer
    assert not (tmp_path / "figures").exists()
    told = call("aces", "frontier", runs["grid"], "--out", tmp_path / "frontier.png", code=2).output
    assert "--out: must be a folder" in told  # it made a folder of that name


@pytest.mark.parametrize(
    ("model", "words", "message"),
    [
        (grid("0:1.5:0.1"), [], "aces(theta=): must lie in [0, 1]"),
        (grid("0:1"), [], "aces(theta=): must be numbers divided by / or start:stop:step"),
        (grid("1"), ["--procedure", "staged"], "must be one of fixed, two-sided, sequential, predict"),
        (grid("1", select="default:2"), [], "must have two outputs"),
        (grid("1"), ["--form", "loose"], "form"),
        (grid("1", core="FACTORY"), [], "must have the certification network's 10 classes"),
        (grid("1", core="NARROW"), [], "core: must accept a batch of shape (1, 1, 28, 28)"),
        (grid("1", select="FACTORY"), [], "select: must return two scores per input"),
    ],
)
def test_bad_runs_are_refused(call: Call, model: str, words: list[str], message: str, tmp_path: Path) -> None:
    build = "def {}():\n    return nn.Sequential(nn.Flatten(), nn.Linear({}, 3))\n"
    (tmp_path / "nets.py").write_text(f"from torch import nn\n{build.format('three', 784)}{build.format('narrow', 9)}")
    for name, factory in (("FACTORY", "three"), ("NARROW", "narrow")):
        model = model.replace(name, f"{tmp_path / 'nets.py'}:{factory}")
    found = call("certify", *SMALL, "--limit", "1", "--model", model, *words, "--out", tmp_path / "run", code=2)
    assert message in found.output
    assert not (tmp_path / "run").exists()


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


def test_a_baseline_in_another_norm_is_refused(call: Call, runs: dict[str, Path], tmp_path: Path) -> None:
    call("certify", *SMALL, "--noise", "laplace", "--out", tmp_path / "laplace")
    said = call("aces", "frontier", runs["grid"], "--baseline", tmp_path / "laplace", code=2).stderr
    assert f"{tmp_path / 'laplace'}: must have radii in l2, as {runs['grid']} (core); got l1" in " ".join(said.split())

"""Rows of the other pages: names as the papers have them, claims without proof labelled, histograms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import aces_page
import pytest
import smooth_reduce_page
from aces_page import found as aces_runs
from aces_page import grid, sections
from diversity_page import ORDER, row_name
from histograms import histogram
from paper_runs import Run, Runs
from paper_tables import published
from smooth_reduce_page import claimed, largest_average, linear_example, study_table
from typer.testing import CliRunner

from ringfence.cli import app
from ringfence.data import load_dataset
from ringfence.models import load_model
from ringfence.operators import Crops
from ringfence.store import RunFolder


@pytest.mark.parametrize(
    ("kind", "lane", "name"),
    [
        ("gaussian", "member-1", "gaussian"),
        ("gaussian", "member-2", None),
        ("gaussian", "max-margin-3", "max-margin(gaussian)"),
        ("smoothadv", "weighted-3", "sween(smoothadv)"),
        ("drt-gaussian", "member-1", "drt single(gaussian)"),
        ("drt-smoothadv", "softmax-3", "drt+softmax(smoothadv)"),
        ("adp", "member-1", None),
        ("adp", "softmax-3", "adp"),
        ("gal", "max-margin-3", None),
    ],
)
def test_lanes_have_the_papers_names(kind: str, lane: str, name: str | None) -> None:
    assert row_name(kind, lane) == name
    assert name is None or name in ORDER


def test_rows_without_proof_say_so() -> None:
    row = {"name": "paper-patch-mean", "question": "paper form", "mode": "patch", "sound": False, "factor": 1.0}
    row |= {"factor_left_out": 2.25, "alpha": 0.001, "draws": 275.0, "forwards": 1100.0, "acr": 0.5, "abstention": 0.0}
    text = "\n".join(study_table([{**row, "certified_accuracy": {"0": 1.0}}]))
    assert "**paper-patch-mean (unsound: no guarantee)**" in text
    assert "1 instead of 2.2500" in text
    numbers = {"n": 100_000, "alpha": 0.001, "tables_1_and_3": []}
    numbers["tables_1_and_3"] = [{"sigma": 0.25, "reduce": "mean", "acr": 0.827, "certified_accuracy": {"0": 82.7}}]
    assert "**mean (unsound: no guarantee)**" in "\n".join(claimed(numbers))


def test_a_study_is_read_from_the_runs_of_its_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = {"base": "default", "k2-max": "patches(default, size=28, resize=32, count=2, reduce=max)"}
    trees["k10-max-fair"] = "patches(default, size=28, resize=32, count=10, reduce=max)"
    trees["patch-mean"] = "patches(default, size=28, resize=32, count=2, noise=patch)"
    trees["paper-patch-mean"] = "patches(default, size=28, resize=32, count=2, noise=patch, form=paper)"
    for name, tree in trees.items():
        draws = ["--n0", "5", "--n", "25"] if "patch" in name else ["--n0", "10", "--n", "50"]
        words = ["certify", "--model", tree, "--sigma", "0.5", "--limit", "1", *draws, "--batch", "60"]
        done = CliRunner().invoke(app, [*words, "--quiet", "--out", str(tmp_path / "digits" / f"digits-{name}")])
        assert done.exit_code == 0, done.output
    monkeypatch.setattr(smooth_reduce_page, "RESULTS", tmp_path)
    (facts,) = smooth_reduce_page.studies().values()
    rows = {row["name"]: row for row in facts["arms"]}
    assert list(rows) == ["base", "k2-max", "k10-max-fair", "paper-patch-mean", "patch-mean"]
    assert [row["question"] for row in rows.values()] == [
        "base",
        "number of patches, same draws",
        "number of patches, a quarter of the draws",
        "paper form",
        "noise mode",
    ]
    assert [row["mode"] for row in rows.values()] == ["-", "input", "input", "patch", "patch"]
    assert [row["sound"] for row in rows.values()] == [True, True, True, False, True]
    assert rows["patch-mean"]["factor"] == rows["paper-patch-mean"]["factor_left_out"] > 1
    assert rows["k2-max"]["forwards"] == 2 * rows["base"]["forwards"] == 120
    assert "proved is" in "\n".join(smooth_reduce_page.study("digits", facts))
    begun = {**facts, "arms": facts["arms"][:2]}  # a sweep that was stopped before anything at equal compute
    assert "equal compute" in "\n".join(smooth_reduce_page.study("digits", facts))
    assert "equal compute" not in "\n".join(smooth_reduce_page.study("digits", begun))


@pytest.mark.parametrize(
    ("tree", "name"),
    [
        ("chunks(default, frames=8)", "plain m=8"),
        ("clips(chunks(default, frames=8), frames=32, count=3, reduce=max)", "(32,8) max k=3"),
    ],
)
def test_videos_have_the_papers_names(fake_run: Callable[..., RunFolder], tmp_path: Path, tree: str, name: str) -> None:
    run = Run("one", fake_run(tmp_path / "one", 2, model=tree, shape=None))
    assert smooth_reduce_page.named(run) == name


def test_the_largest_average_is_that_of_radii_at_the_upper_ends() -> None:
    one = {"sigma": 0.25, "certified_accuracy": {"0": 80.0, "0.25": 50.0}}
    most = 0.25 * 3.8114  # what 100,000 draws that all agree prove at alpha .001
    assert largest_average(one, 100_000, 0.001) == pytest.approx(0.3 * 0.25 + 0.5 * most, abs=1e-4)


def test_only_the_published_claim_exceeds_the_truth() -> None:
    sound, published, truth = linear_example("patch")
    assert sound < truth < published


def test_histograms_count_every_draw_of_the_two_top_classes() -> None:
    network, (item,) = load_model("default").at_input, load_dataset("default", limit=1)
    found = histogram(network, item, Crops(size=28, resize=32, count=4), 0.5)
    assert list(found["panels"]) == ["base logits", "mean logits", "base softmax", "mean softmax", "max softmax"]
    for panel in found["panels"].values():
        assert [sum(counts) for counts in panel["counts"]] == [1000, 1000]
        assert panel["means"][0] > panel["means"][1]


def test_networks_at_other_noise_stand_beside_the_papers() -> None:
    """The grid is of runs with n = 10,000; one of table 8, at theta 1, serves as well."""
    root = Path(__file__).resolve().parents[2]
    runs, numbers = Runs.under(root / "results" / "cifar10"), published(root / "reproduce" / "horvath2022-aces")
    (run,) = [one for one in aces_runs(runs, 100_000) if one.name == "aces-gaussian-0.25"]
    lines = grid([run], numbers)
    alone = next(one for one in runs if one.name == "gaussian-lanes-0.25").lanes((0.5,))["member-1"]
    assert lines[-3].startswith("| gaussian, ResNet20 | 0.25 | 0.25 | 80.6 | 0.431 |")
    assert lines[-3].split(" | ")[8] == f"{100 * alone.certified_accuracy[0.5]:.1f}"
    assert lines[-2].startswith("| *paper, smoothadv, ResNet110, table 15* | *0.25* | *0.25* | *74.0* | *0.546* |")
    assert grid([], numbers) == []


def test_a_network_that_selects_has_tables_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tree says of its selector puts a run apart, and no name does."""
    for name, select in {"a": "entropy", "b": "zoo:mnist/select-0.5-1.25:0"}.items():
        tree = f"aces(certify=zoo:mnist/gaussian-0.5:0, core=default:1, select={select}, theta=0/0.5/1)"
        words = [
            "certify",
            "--model",
            tree,
            "--sigma",
            "0.25",
            "--limit",
            "2",
            "--n0",
            "10",
            "--n",
            "50",
            "--batch",
            "60",
        ]
        done = CliRunner().invoke(app, [*words, "--quiet", "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    runs = Runs.under(tmp_path)
    assert [run.name for run in aces_runs(runs, 50)] == ["a"]
    assert [run.name for run in aces_runs(runs, 50, by_network=True)] == ["b"]
    for name, value in {"DRAWS": 50, "DRAWS_OF_GRID": 51, "THETAS": (0.5,)}.items():
        monkeypatch.setattr(aces_page, name, value)
    page = "\n".join(sections(runs))
    eighth, fourteenth = (page.split(f"## Table {number}")[1].split("\n## ")[0] for number in (8, 14))
    for part, networks, paper in (
        (eighth, "gaussian, LeNet, sigma 0.25:", "| *paper, 0.5* | *85.4* | *0.397* |"),
        (
            fourteenth,
            "eta 0.5, a LeNet selects for gaussian, LeNet, sigma 0.25:",
            "| *paper, 0.5* | *77.8* | *0.422* |",
        ),
    ):
        lines = part.splitlines()
        assert [line for line in lines if line.endswith(", sigma 0.25:")] == [networks]
        assert len([line for line in lines if line.startswith("| 0.5 |")]) == 1
        (there,) = [line for line in lines if line.startswith("| *paper")]
        assert there.startswith(paper)
    assert "- `mnist/select-0.5-1.25`: 1 lenet; select (base gaussian (copies 2), eta 0.5, n 100); " in page
    assert "for `default`" in page
    monkeypatch.setattr(aces_page, "DRAWS_OF_GRID", 50)
    monkeypatch.setattr(aces_page, "DRAWS", 51)
    lines = "\n".join(sections(runs)).split("## Tables 15 and 16")[1].split("\n## ")[0].splitlines()
    assert len([line for line in lines if line.startswith("| gaussian, LeNet |")]) == 1, "entropy's alone"

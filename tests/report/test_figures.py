"""What is plotted equals the metrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ringfence.analysis import metrics, stage_summary
from ringfence.analysis.aces import ThetaMetrics
from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Fixed, Given, Sequential, TwoSided
from ringfence.report.aces_drawing import frontier_specification
from ringfence.report.figure import drawn
from ringfence.report.lane_figures import figure, lane_figures, radius_grid
from ringfence.report.other_figures import training_figures, variance_figures
from ringfence.report.reading import load, sort_out
from ringfence.report.rendering import save, specification
from ringfence.stats import clopper_pearson_lower, clopper_pearson_upper
from ringfence.store import RunFolder

FakeRun = Callable[..., RunFolder]


def test_the_curve_is_the_certified_accuracy_with_its_bands(fake_run: FakeRun, tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / "a", 30, seed=1), fake_run(tmp_path / "b", 50, seed=2, sigma=1.0)]
    found = figure("curve", load([run.path for run in runs]).lanes)
    for run in runs:
        rows = [row for row in found.rows if row["run"] == run.path.name and "radius" in row]
        expected = metrics(run, [row["radius"] for row in rows]).certified_accuracy
        count = len(run.read())
        for row in rows:
            assert row["accuracy"] == expected[row["radius"]]
            hits = round(row["accuracy"] * count)
            assert row["low"] == pytest.approx(float(clopper_pearson_lower(hits, count, 0.025)), abs=1e-6)
            assert row["high"] == pytest.approx(float(clopper_pearson_upper(hits, count, 0.025)), abs=1e-6)
        assert rows[0]["radius"] == 0
        assert [row["accuracy"] for row in rows].count(0.0) <= 1, "the curve ends at its first zero"


def test_a_run_without_a_right_answer_is_seen_as_a_line(fake_run: FakeRun, tmp_path: Path) -> None:
    runs = [fake_run(tmp_path / "a"), fake_run(tmp_path / "wrong", 1, seed=3)]
    rows = [row for row in figure("curve", load([run.path for run in runs]).lanes).rows if row["run"] == "wrong"]
    assert [row["accuracy"] for row in rows if "accuracy" in row] == [0.0, 0.0]


def test_the_ceiling_is_what_all_draws_agreeing_would_prove(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    found = figure("curve", load([tmp_path / "a"]).lanes)
    (rule,) = [row for row in found.rows if "ceiling" in row]
    assert rule["ceiling"] == pytest.approx(Fixed(n=500).best_case(Given(2, 0.5, neyman_pearson)), abs=1e-6)
    assert max(row["radius"] for row in found.rows if "radius" in row and row["accuracy"]) <= rule["ceiling"]


def test_runs_with_known_radii_stand_beside_others(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "free")
    fake_run(tmp_path / "known", procedure=Sequential(radius=0.3, n=2000, larger=(0.6,)))
    found = figure("curve", load([tmp_path / "free", tmp_path / "known"]).lanes)
    assert [row["radius"] for row in found.rows if row.get("tried")] == [0.0, 0.3, 0.6]
    assert len([row for row in found.rows if row.get("tried") is False]) > 10


def test_known_radii_alone_are_outcomes_and_no_curve(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "known", procedure=Sequential(radius=0.3, n=2000, larger=(0.6,)))
    lanes = load([run.path]).lanes
    assert "curve" not in lane_figures(lanes)
    shares = {row["outcome"]: row["share"] for row in figure("outcomes", lanes).rows}
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    found = metrics(run, [0.3, 0.6])
    assert shares["right, radius 0.6"] == pytest.approx(found.certified_accuracy[0.6], abs=1e-6)
    both = shares["right, radius 0.6"] + shares["right, radius 0.3"]
    assert both == pytest.approx(found.certified_accuracy[0.3], abs=1e-5)
    assert shares["abstained"] == pytest.approx(found.abstention, abs=1e-6)


def test_the_distribution_of_p_a_ends_at_one(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    (lane,) = load([tmp_path / "a"]).lanes
    rows = figure("ecdf", [lane]).rows
    assert rows[0]["share"] == 0
    assert rows[-1]["share"] == 1
    for row in rows[1:]:
        assert row["share"] == pytest.approx(np.mean(lane.share <= row["x"] + 1e-6), abs=1e-5)


def test_stages_are_the_summary_s_shares(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", procedure=Sequential(radius=0.3, n=2000))
    rows = figure("stages", load([run.path]).lanes).rows
    shares = stage_summary(run.read()).shares
    assert [row["percent"] for row in rows if row["outcome"] == "certified"] == [round(s.asc, 4) for s in shares]
    assert sum(row["percent"] for row in rows) == pytest.approx(100)


def test_every_mechanism_is_averaged(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", procedure=TwoSided(n=500), mechanisms=("neyman_pearson", "renyi"))
    rows = figure("mechanisms", load([run.path]).lanes).rows
    names = {"neyman-pearson": "neyman_pearson", "renyi": "renyi"}  # as options spell them: as records do
    means = {told: np.mean([record.radii[name] for record in run.read()]) for told, name in names.items()}
    assert {row["mechanism"]: row["mean"] for row in rows} == pytest.approx(means)


def test_the_frontier_has_one_point_per_theta(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", lanes=("theta=0.90", "theta=0.10"))
    rows = figure("frontier", load([run.path]).lanes).rows
    assert [row["theta"] for row in rows] == [0.1, 0.9]
    assert rows[0]["acr"] == metrics(run, [0.0], "theta=0.10").acr


def test_of_many_lanes_some_are_drawn_and_keep_their_colours(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 6, lanes=[f"lane-{k:02d}" for k in range(20)])
    lanes = load([tmp_path / "a"]).lanes
    shown = [lane.lane for lane in drawn(lanes)]
    assert len(shown) == 5
    assert (shown[0], shown[-1]) == ("lane-00", "lane-19")
    assert figure("ecdf", lanes).colours == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("largest", [0.0, 0.3, 1.23, 3.9, 40.0, 1000.0])
def test_radius_grids_reach_the_largest_radius_in_few_steps(largest: float) -> None:
    grid = radius_grid(largest)
    assert grid[0] == 0
    assert grid[-1] >= largest
    assert len(grid) <= 162


def test_missing_figures_say_what_there_is(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    lanes = load([tmp_path / "a"]).lanes
    with pytest.raises(ArgumentError, match="These runs have curve, ecdf"):
        figure("frontier", lanes)
    with pytest.raises(ArgumentError, match="must be one of curve"):
        figure("pie", lanes)


def test_runs_without_labels_have_no_accuracy(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", labelled=False)
    lanes = load([tmp_path / "a"]).lanes
    assert "curve" not in lane_figures(lanes)
    assert "ecdf" in lane_figures(lanes)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figures_are_written_for_papers(fake_run: FakeRun, tmp_path: Path, suffix: str) -> None:
    fake_run(tmp_path / "a")
    out = tmp_path / "new" / f"figure.{suffix}"
    save(figure("curve", load([tmp_path / "a"]).lanes), out)
    assert out.read_bytes()[:4] in (b"\x89PNG", b"<svg", b"%PDF")


def test_charts_hold_the_rows_and_nothing_from_a_network(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", procedure=TwoSided(n=500), mechanisms=("neyman_pearson", "renyi"))
    lanes = load([tmp_path / "a"]).lanes
    for kind in ("curve", "ecdf", "mechanisms", "simplex"):
        found = figure(kind, lanes)
        spec = specification(found)
        held = [row for rows in spec["datasets"].values() for row in rows]
        assert len(held) == len(found.rows), "every row is held once"
        assert [row for row in found.rows if row not in held] == []
        assert "url" not in str({key: value for key, value in spec.items() if key != "$schema"})


def test_training_logs_and_variance_studies_become_lines(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "log.csv").write_text("epoch,loss,noisy_accuracy,held_out_accuracy\n1,2.5,0.5,\n2,nan,0.75,0.7\n")
    study = tmp_path / "v.json"
    study.write_text('{"zeta_p": 0.1, "sizes": [{"k": 2, "radius": {"predicted": 0.5, "measured": 0.4}}]}')
    runs, extras = sort_out([folder, study])
    assert runs == []
    trained = training_figures(extras.training)
    assert [(row["x"], row["y"]) for row in trained["training-loss"].rows] == [(1.0, 2.5)]
    assert len(trained["training-accuracy"].rows) == 3
    (radius,) = variance_figures(extras.variance).values()
    assert [row["y"] for row in radius.rows] == [0.5, 0.4]
    assert specification(radius)["height"]


def test_numbers_stand_below_their_ticks_and_apart(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a")
    made = specification(figure("curve", load([tmp_path / "a"]).lanes))
    assert made["config"]["axis"]["labelFlush"] is False
    assert made["config"]["axis"]["labelSeparation"] > 0  # on a phone those of p_A were one word, 0.350.400.45


def test_thresholds_that_are_all_alike_have_an_axis_that_can_be_read() -> None:
    """Its ticks were 99.9999999999 and 100.0000000001."""
    alike = [ThetaMetrics(theta, 1.0, 0.85, 0.0, {0.25: 1.0}, {0.25: 1.0}) for theta in (0.3, 0.7)]
    for panel, least in zip(frontier_specification(alike, [None, 0.25])["hconcat"], (0.001, 0.1), strict=True):
        for channel, wide in (("x", 0.1), ("y", least)):
            low, high = panel["layer"][0]["encoding"][channel]["scale"]["domain"]
            assert high - low > wide

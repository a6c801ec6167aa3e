"""Radii in other norms: balls that lie in the proved ones, as large as can be, and named beside what was proved."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import ringfence as rf
from ringfence.analysis.bounds import RunBounds
from ringfence.analysis.metrics import load_metrics
from ringfence.cli import app
from ringfence.errors import ArgumentError
from ringfence.mechanisms import MECHANISMS
from ringfence.report.answer import answer
from ringfence.report.lane_figures import figure
from ringfence.report.reading import load
from ringfence.report.summary import lane_guarantee
from ringfence.rounding import written
from ringfence.sampling import ForwardPlan
from ringfence.stats.norms import NORMS, InNorm
from ringfence.store.logs import read_cohen
from ringfence.types import FloatArray

FAST = rf.Execution(device="cpu", plan=ForwardPlan(100))
ROOT = 784**-0.5


@pytest.mark.parametrize("proved", NORMS)
@pytest.mark.parametrize("asked", NORMS)
@pytest.mark.parametrize("d", [1, 2, 7, 784])
def test_the_converted_ball_lies_in_the_proved_one_and_touches_it(proved: str, asked: str, d: int) -> None:
    factor = InNorm(asked).factor(proved, d)
    ends = np.random.default_rng(0).normal(size=(500, d))
    corners = np.sign(ends)
    single = np.eye(1, d)  # one coordinate, or all alike, are the extremes

    def length(points: FloatArray, norm: str) -> FloatArray:
        return np.asarray(np.linalg.norm(points, NORMS[norm], axis=1))

    for points in (ends, corners, single):
        radius = 0.3 * factor * points / length(points, asked)[:, None]
        assert (length(radius, proved) <= 0.3 * (1 + 1e-12)).all()
    farthest = max(length(points / length(points, asked)[:, None], proved).max() for points in (corners, single))
    assert factor * farthest == pytest.approx(1.0, rel=1e-9)
    assert factor <= 1


def test_known_conversions_are_rounded_down() -> None:
    for d in (2, 3, 784, 3072, 150528):
        assert InNorm("linf").factor("l2", d) ** 2 * d < 1
        assert InNorm("linf").factor("l2", d) == pytest.approx(d**-0.5, rel=1e-14)
        assert InNorm("l2").factor("l1", d) == InNorm("linf").factor("l2", d)
        assert InNorm("linf").factor("l1", d) == pytest.approx(1 / d, rel=1e-14)
    assert [InNorm(norm).factor("l2", 784) for norm in ("l1", "l2")] == [1.0, 1.0]
    assert InNorm("l1").factor("l2") == 1.0  # needs no number of coordinates


def test_radii_are_written_rounded_down() -> None:
    told = {0.5: "0.5", 0.0: "0", 0.1: "0.1", 1 / 3: "0.333333", 2 / 3: "0.666666", 0.49999999: "0.499999", 12.0: "12"}
    assert {radius: written(radius) for radius in told} == told
    assert written(0.7 + 0.1) == repr(0.7 + 0.1) == "0.7999999999999999"  # not 0.799999, which nobody asked for
    assert written(0.1 * 3) == "0.3"
    for radius in (10 ** np.random.default_rng(0).uniform(-9, 6, 2000)).tolist():
        assert radius * (1 - 1.1e-5) <= float(written(radius)) <= radius


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(ArgumentError, match="norm: must be one of l1, l2, linf"):
        InNorm("l0")
    with pytest.raises(ArgumentError, match="coordinates: must be a positive number"):
        InNorm("l2", 0)
    with pytest.raises(ArgumentError, match="radii in l2 shrink in linf by the number of coordinates"):
        InNorm("linf").factor("l2")
    with pytest.raises(ArgumentError, match="must be those of the run, 784; got 3072"):
        InNorm("linf", 3072).factor("l2", 784)
    with pytest.raises(ArgumentError, match="can be converted"):
        InNorm("l2").factor("wasserstein")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, test in {"fixed": rf.Fixed(n=300), "sequential": rf.Sequential(0.2, n=1000)}.items():
        data = rf.Data("default", limit=4)
        rf.Certification("default", data, noise=rf.Gaussian(0.5), procedure=test).run(folder / name, FAST)
    return folder


def test_metrics_and_records_are_converted_and_say_so(runs: Path) -> None:
    run = rf.RunFolder.open(runs / "fixed")
    plain, shown = run.read(), run.in_norm(InNorm("linf")).read()
    for ours, theirs in zip(plain, shown, strict=True):
        assert (ours.norm, theirs.norm) == ("l2", "linf")
        assert theirs.radius == pytest.approx(ours.radius * ROOT, rel=1e-14)
        assert theirs.radii == pytest.approx({name: one * ROOT for name, one in ours.radii.items()}, rel=1e-14)
        assert (theirs.p_a, theirs.draws, theirs.prediction) == (ours.p_a, ours.draws, ours.prediction)
    (before,), (after,) = load_metrics(runs / "fixed", [0]), load_metrics(runs / "fixed", [0], shown=InNorm("linf"))
    assert after.acr == pytest.approx(float(before.acr or 0) * ROOT, rel=1e-12)
    assert {"norm", "proved_norm"}.isdisjoint(before.to_dict())
    assert (after.to_dict()["norm"], after.to_dict()["proved_norm"]) == ("linf", "l2")


def test_nobody_says_other_coordinates_than_the_shape_that_a_finished_run_tells(runs: Path) -> None:
    """Settings of float noise say none: whoever wrote 1 was shown l2 radii as radii in linf."""
    data = rf.Data("default", limit=2)
    value = rf.Certification("default", data, noise=rf.Gaussian(0.5, form="float"), procedure=rf.Fixed(n=300))
    run = value.run(runs / "float", FAST)
    assert run.config.noise.coordinates is None
    assert run.in_norm(InNorm("linf")).factor == InNorm("linf").factor("l2", 784)
    with pytest.raises(ArgumentError, match="must be those of the run, 784; got 1"):
        load_metrics(runs / "float", [0], shown=InNorm("linf", 1))


def test_a_known_radius_is_one_in_every_norm(runs: Path) -> None:
    (plain,), (shown,) = (load_metrics(runs / "sequential", None, shown=one) for one in (None, InNorm("linf")))
    assert plain.certified_accuracy[0.2] == shown.certified_accuracy[max(shown.certified_accuracy)]
    assert max(shown.certified_accuracy) == pytest.approx(0.2 * ROOT)
    with pytest.raises(ArgumentError, match="only tried to prove"):
        load_metrics(runs / "sequential", [0.1], shown=InNorm("linf"))


def test_the_radius_of_a_headline_and_of_a_table_is_not_rounded_up(runs: Path) -> None:
    asked = CliRunner().invoke(app, ["metrics", str(runs / "sequential"), "--norm", "linf"])
    assert asked.exit_code == 0
    (headings,) = (line for line in asked.output.splitlines() if "abst%" in line)
    told = answer(load([runs / "sequential"], shown=InNorm("linf")).lanes).label.split()[-1]
    assert told in headings.split()
    assert float(told) <= 0.2 * ROOT < float(f"{0.2 * ROOT:.6g}")


def test_radii_by_other_mechanisms_are_converted_too(runs: Path) -> None:
    plain, shown = (RunBounds.load(runs / "fixed", shown=one) for one in (None, InNorm("linf")))
    for name in ("neyman_pearson", "one_sided"):
        np.testing.assert_allclose(shown.radius(MECHANISMS[name]), plain.radius(MECHANISMS[name]) * ROOT, rtol=1e-12)


def test_report_and_plot_name_both_norms(runs: Path) -> None:
    for name, kind in (("fixed", "curve"), ("sequential", "outcomes")):
        material = load([runs / name], shown=InNorm("linf"))
        drawn, before = figure(kind, material.lanes, {}), figure(kind, load([runs / name]).lanes, {})
        assert drawn.radius == "linf radius (proved in l2)"
        assert before.radius == "l2 radius"
        if kind == "curve":
            reach = [max(row.get("radius", 0.0) for row in one.rows) for one in (drawn, before)]
            assert reach[0] < 0.1 < reach[1]
        else:
            assert [row["outcome"] for row in drawn.rows] != [row["outcome"] for row in before.rows]
        assert "linf norm below its radius" in lane_guarantee(material.lanes[0])
    lane = load([runs / "fixed"], shown=InNorm("linf")).lanes[0]
    assert lane.ceiling == pytest.approx(float(load([runs / "fixed"]).lanes[0].ceiling or math.nan) * ROOT)


def test_logs_are_l2_and_need_a_number_of_coordinates(runs: Path) -> None:
    log = runs / "log.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.56\t1\t0:00:01\n")
    (found,) = load_metrics(log, [0.02], shown=InNorm("linf", 784))
    assert found.certified_accuracy == {0.02: 0.0}
    assert load_metrics(log, [0.01999], shown=InNorm("linf", 784))[0].certified_accuracy == {0.01999: 1.0}
    assert read_cohen(log).in_norm(InNorm("linf", 784)).norm == "linf"
    with pytest.raises(ArgumentError, match="coordinates"):
        load_metrics(log, [0.0], shown=InNorm("linf"))


def test_commands_take_a_norm(runs: Path) -> None:
    def call(*words: object) -> str:
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    fixed, linf = runs / "fixed", ("--norm", "linf")
    assert "in linf (proved in l2)" in call("metrics", fixed, "--radii", "0,0.01", *linf)
    assert json.loads(call("metrics", fixed, *linf, "--json"))["runs"][0]["proved_norm"] == "l2"
    assert "radii in linf, converted from l2" in call("compare", fixed, *linf)
    assert json.loads(call("compare", fixed, *linf, "--json"))["proved_norm"] == {str(fixed): "l2"}
    assert json.loads(call("compare", fixed, "--envelope", *linf, "--json"))["norm"] == "linf"
    page = runs / "page.html"
    call("report", fixed, "--out", page, *linf)
    assert "converted from l2, in which they were proved" in page.read_text()
    rows = json.loads(call("plot", fixed, "--out", runs / "plot.svg", *linf, "--json"))["rows"]
    assert max(row.get("radius", 0.0) for row in rows) < 0.1

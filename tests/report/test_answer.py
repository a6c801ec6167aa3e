"""The page opens with the answer: one number, one sentence, one picture that fits the run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.analysis import metrics
from ringfence.procedures import Multinomial, Predict, Sequential
from ringfence.report.answer import answer, headline_radius, interval
from ringfence.report.page import file_name, report_page, sections
from ringfence.report.reading import load
from ringfence.stats.norms import InNorm
from ringfence.store import RunFolder

FakeRun = Callable[..., RunFolder]


def test_a_curve_answers_at_sigma_fixed_before_the_outcome(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 40, sigma=0.25)
    found = answer(load([run.path]).lanes)
    share = metrics(run, [0.25]).certified_accuracy[0.25]
    assert found.number == f"{100 * share:.1f}%"
    assert found.label == "certified at l2 radius 0.25"
    assert found.sentence.startswith(f"{found.number} of 40 test inputs (95% interval ")


@pytest.mark.parametrize("count", [30, 37, 40])
def test_the_interval_is_rounded_outwards(fake_run: FakeRun, tmp_path: Path, count: int) -> None:
    run = fake_run(tmp_path / "a", count, sigma=0.25)
    low, high = interval(round(count * metrics(run, [0.25]).certified_accuracy[0.25]), count)
    (ends,) = re.findall(r"95% interval ([0-9.]+)% to ([0-9.]+)%", answer(load([run.path]).lanes).sentence)
    assert 100 * low - 0.1 < float(ends[0]) <= 100 * low
    assert 100 * high <= float(ends[1]) < 100 * high + 0.1


def test_a_known_radius_answers_at_that_radius(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 40, Sequential(radius=0.3, n=2000))
    found = answer(load([run.path]).lanes)
    assert found.number == f"{100 * metrics(run, [0.3]).certified_accuracy[0.3]:.1f}%"
    assert "l2 radius 0.3" in found.sentence


def test_the_radius_of_the_answer_is_in_the_norm_shown(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "a", 40, sigma=0.5)
    (lane,) = load([run.path], shown=InNorm("linf", 64)).lanes
    assert headline_radius(lane) == pytest.approx(0.5 / 8, abs=1e-3)
    assert "linf radius 0.0625" in answer([lane]).label


def test_what_is_not_proved_is_not_called_certified(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "paper", procedure=Multinomial(n=500, form="paper"))
    fake_run(tmp_path / "predict", procedure=Predict())
    fake_run(tmp_path / "unlabelled", labelled=False)
    told = {name: answer(load([tmp_path / name]).lanes) for name in ("paper", "predict", "unlabelled")}
    assert "certified" not in str(told)
    assert "nothing of this is proven" in told["paper"].sentence
    assert "no radius is claimed" in told["predict"].sentence
    assert "no labels" in told["unlabelled"].sentence


def test_the_first_run_named_answers_for_the_page(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "worse", 30, sigma=0.12)
    fake_run(tmp_path / "better", 30, sigma=0.12, seed=4)
    lanes = load([tmp_path / "worse", tmp_path / "better"]).lanes
    assert answer(lanes).number == answer(lanes[:1]).number
    assert "This is worse, the first of 2" in answer(lanes).sentence


@pytest.mark.parametrize(("procedure", "kind"), [(None, "curve"), (Sequential(radius=0.3, n=2000), "outcomes")])
def test_the_opening_picture_fits_and_is_drawn_once(
    fake_run: FakeRun, tmp_path: Path, procedure: Sequential | None, kind: str
) -> None:
    fake_run(tmp_path / "a", 20, procedure)
    first, *others = sections(load([tmp_path / "a"]))
    assert [figure.kind for figure in first.figures] == [kind]
    assert kind not in [figure.kind for section in others for figure in section.figures]


def test_the_answer_comes_before_table_and_settings(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "a", 20)
    page = report_page(load([tmp_path / "a"]))
    order = [page.index(mark) for mark in ('class="answer"', 'id="chart-answer-0"', 'id="summary"', 'id="what"')]
    assert order == sorted(order)


def test_saved_figures_have_names_that_any_disk_takes(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "b: <run>", 20)
    material = load([tmp_path / "b: <run>"])
    (figure,) = sections(material)[0].figures
    assert file_name(material, figure) == "b-run-certified-accuracy-against-radius"

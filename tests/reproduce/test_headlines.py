"""The table of published radii beside ours: each row is one published number and one run, or a step that brings it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from headlines_page import Headline, away, headlines, in_short, measured, row
from paper_runs import Run, Runs
from paper_sweeps import entries
from paper_tables import ROOT
from stretch_plan import steps

EVERY = list(headlines())


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [run for folder in ("cifar10", "mnist") for run in Runs.under(ROOT / "results" / folder)]


@pytest.mark.parametrize("one", EVERY, ids=lambda one: f"{one.paper}: {one.training}, {one.lane}")
def test_each_is_one_published_number_and_at_most_one_run(one: Headline, runs: list[Run]) -> None:
    assert 0.2 < one.published() < 2
    found = [run for run in runs if one.names(run)]
    assert len(found) <= 1
    if not found:
        assert any(one.step in step.names and step.left for step in steps(entries)), "nothing brings it"
    else:
        assert one.lane == "mean" or one.lane in found[0].lane_names


def test_runs_of_other_images_draws_or_networks_are_not_taken(runs: list[Run]) -> None:
    one = next(one for one in EVERY if one.training == "cifar10/gaussian-resnet110-0.25" and one.procedure == "fixed")
    (run,) = [run for run in runs if one.names(run)]
    others = (
        {"images": 10_000},
        {"draws": 1},
        {"number": 10},
        {"sigma": 0.5},
        {"training": "x"},
        {"procedure": "aces"},
    )
    for other in others:
        assert not replace(one, **other).names(run), other  # type: ignore[arg-type]


def test_what_has_no_run_says_how_far_away_it_is() -> None:
    one = next(one for one in EVERY if one.step)
    assert row(one, measured(one, []))[-2:] == [away(one.step), ""]
    assert away("no-such-step") == "not run"
    assert len({(one.paper, one.network, one.sigma, one.images) for one in EVERY}) == len(EVERY)


def test_the_table_is_told_in_short() -> None:
    assert (
        in_short([0.5, 9.0, -2.0], 4)
        == "3 of 4 have a run: -2.0% to +9.0% off what is published, half of them by at most 2.0%."
    )


def test_members_are_averaged_each_by_itself(runs: list[Run]) -> None:
    one = next(one for one in EVERY if one.lane == "mean")
    run = next(filter(one.names, runs))
    radii = [lane.acr for name, lane in run.lanes((0.0,)).items() if name.startswith("member-")]
    assert len(radii) == one.number
    assert one.ours(run) == pytest.approx(sum(radii) / len(radii))


def test_an_ambiguous_row_is_no_published_number(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too many"):
        replace(EVERY[0], where={"sigma": 0.25}).published()

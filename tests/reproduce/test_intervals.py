"""Intervals and spreads of average radii: as wide as theory says, and of the lanes that tables show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from paper_intervals import alike, headline, interval, intervals
from paper_runs import Run, Runs

ROOT = Path(__file__).resolve().parents[2]


def test_the_interval_of_a_mean_is_that_of_its_normal_limit() -> None:
    earned = np.random.default_rng(1).exponential(size=2000)
    low, high = interval(earned)
    error = 1.96 * earned.std() / np.sqrt(len(earned))
    assert low == pytest.approx(earned.mean() - error, abs=0.1 * error)
    assert high == pytest.approx(earned.mean() + error, abs=0.1 * error)
    assert interval(np.full(10, 0.5)) == pytest.approx((0.5, 0.5))


@pytest.fixture(scope="module")
def three() -> Run:
    return next(run for run in Runs.under(ROOT / "results" / "cifar10") if run.name == "gaussian-three-0.25")


def test_radii_average_to_the_acr_of_the_page(three: Run) -> None:
    found = dict(headline(three))
    assert list(found) == ["max-margin-3", "member-1", "softmax-3"]
    for lane, earned in found.items():
        assert earned.mean() == pytest.approx(three.lanes((0.0,))[lane].acr)


def test_a_section_has_a_line_for_each(three: Run) -> None:
    lines = [line for line in intervals([three]) if line.startswith("| `")]
    assert len(lines) == 4
    assert lines[2] == "| `gaussian-three-0.25` | softmax-3 | 0.25 | 1000 | 0.487 | 0.465 to 0.511 |"
    assert intervals([]) == []


def test_seeds_are_compared_where_nothing_else_differs(three: Run) -> None:
    found = three.lanes((0.0,))
    acrs = [found[f"member-{i}"].acr or 0.0 for i in (1, 2, 3)]
    (line,) = [line for line in intervals([three])[-2:] if line.startswith("| `")]
    spread = f"{np.mean(acrs):.3f} ± {np.std(acrs, ddof=1):.3f}"
    assert line == f"| `gaussian-three-0.25` | 0.25 | 3 | {spread} | {min(acrs):.3f} to {max(acrs):.3f} |"
    assert alike(three.trainings)
    drt = next(run for run in Runs.under(ROOT / "results" / "cifar10") if run.name == "drt-0.1-0.5-0.25")
    assert not alike(drt.trainings), "members that were trained together"
    assert not alike([*three.trainings, *drt.trainings])


@pytest.mark.parametrize("folder", ["horvath2022-aces", "cullen2022-simplex", "joshi2022-smooth-reduce"])
def test_averages_without_a_section_of_intervals_have_a_column(folder: str) -> None:
    page = (ROOT / "reproduce" / folder / "README.md").read_text(encoding="utf-8")
    heads = [line for line in page.splitlines() if "| ACR |" in line or "| mean gain |" in line]
    assert heads
    ours = [head for head in heads if "| allowed |" not in head]  # published numbers alone
    assert all("| interval |" in head for head in ours)

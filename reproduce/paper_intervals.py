"""How far an average radius would lie with other inputs of the same kind: bootstrap intervals over a run's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from paper_runs import Run
from paper_tables import Row, section, table

from ringfence.analysis.columns import columns_of
from ringfence.types import ABSTAIN

RESAMPLES = 2000
LEVEL = 0.95


def interval(earned: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean, always from the same resamples."""
    count = len(earned)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    low, high = np.quantile(drawn @ earned / count, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def earned_radii(run: Run) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    """The headline lanes of a run, and the radius of each input that was answered rightly, 0 of the others."""
    columns = columns_of(run.folder)
    lanes = np.unique(columns.lane).tolist()
    for lane in lanes:
        vote = lane.endswith(f"-{run.size}") and not lane.startswith(("member", "consensus"))
        if len(lanes) == 1 or lane == "member-1" or vote:
            rows = columns.at(columns.lane == lane)
            right = (rows.prediction == rows.label) & (rows.prediction != ABSTAIN)
            yield ("" if len(lanes) == 1 else lane), np.where(right, rows.radius, 0.0)[rows.labelled]


def intervals(runs: Iterable[Run]) -> list[str]:
    """A section: every run with a fixed number of draws, its average radius and the interval."""
    rows: list[Row] = []
    for run in runs:
        if run.procedure == "fixed" and run.reducing is None and run.trainings:
            for lane, earned in earned_radii(run):
                low, high = interval(earned)
                acr = f"{earned.mean():.3f}"
                rows.append(
                    [f"`{run.name}`", lane, f"{run.sigma:g}", str(len(earned)), acr, f"{low:.3f} to {high:.3f}"]
                )
    about = [
        f"Average radii with {LEVEL:.0%} bootstrap intervals over the inputs ({RESAMPLES:,} resamples): how far other",
        "images of the same kind would move them, the networks being the same. Runs on the same images move together.",
    ]
    head = ["run", "lane", "sigma", "images", "ACR", "interval"]
    return section("Intervals over the inputs", about, *([table(head, rows)] if rows else []))

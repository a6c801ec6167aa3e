"""How far an average radius would lie with other inputs of the same kind (bootstrap), and with other seeds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from paper_runs import Run
from paper_tables import Row, section, table
from paper_trainings import Training

from ringfence.analysis.aces import Answers
from ringfence.analysis.columns import Columns, columns_of
from ringfence.training.job import TrainingJob
from ringfence.types import ABSTAIN, FloatArray

RESAMPLES = 2000
LEVEL = 0.95
MEANT = f"{LEVEL:.0%} bootstrap interval over the inputs ({RESAMPLES:,} resamples)"
"""What a column of intervals holds."""


@lru_cache(maxsize=2)
def _shares(count: int) -> FloatArray:
    """Resamples (RESAMPLES, count): the share of each input, always the same."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    return np.asarray(drawn / count)


def interval(values: FloatArray) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean of what each input earned."""
    low, high = np.quantile(_shares(len(values)) @ values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def spanned(values: FloatArray, digits: int = 3) -> str:
    """The interval as a cell."""
    low, high = interval(values)
    return f"{low:.{digits}f} to {high:.{digits}f}"


def earned(rows: Columns | Answers) -> FloatArray:
    """The radius of each labelled input that was answered rightly, 0 of the others."""
    right = (rows.prediction == rows.label) & (rows.prediction != ABSTAIN)
    return np.asarray(np.where(right, rows.radius, 0.0)[rows.label >= 0])


def earned_of(run: Run) -> dict[str, FloatArray]:
    """The same of every lane of a run, in the order of their names."""
    columns = columns_of(run.folder)
    return {lane: earned(columns.at(columns.lane == lane)) for lane in np.unique(columns.lane).tolist()}


def headline(run: Run) -> Iterator[tuple[str, FloatArray]]:
    """The lanes that tables show: the only one, the first member, votes of all; each where every one is a training."""
    lanes = earned_of(run)
    if len(lanes) == 1:
        yield "", *lanes.values()
    elif len(lanes) == len(run.trainings):
        yield from zip((one.name.rpartition("/")[2] for one in run.trainings), lanes.values(), strict=True)
    else:
        for lane, values in lanes.items():
            vote = lane.endswith(f"-{run.size}") and not lane.startswith(("member", "consensus"))
            if lane == "member-1" or vote:
                yield lane, values


def intervals(runs: Iterable[Run]) -> list[str]:
    """Sections: every run with a fixed number of draws, its average radius and the interval; and what seeds change."""
    chosen = [run for run in runs if run.procedure == "fixed" and run.reducing is None and run.trainings]
    rows: list[Row] = []
    for run in chosen:
        for lane, values in headline(run):
            acr = f"{values.mean():.3f}"
            rows.append([f"`{run.name}`", lane, f"{run.sigma:g}", str(len(values)), acr, spanned(values)])
    about = [
        f"Average radii, each with a {MEANT}: how far other",
        "images of the same kind would move them, the networks being the same. Runs on the same images move together.",
    ]
    head = ["run", "lane", "sigma", "images", "ACR", "interval"]
    lines = section("Intervals over the inputs", about, *([table(head, rows)] if rows else []))
    return [*lines, *spreads(chosen)]


def alike(trainings: Iterable[Training]) -> bool:
    """Whether members differ in nothing but their seeds: none was trained together with others."""
    jobs = [TrainingJob.of(one.settings) for one in trainings if one.settings]
    if any(job.objective.grouping != "alone" for job in jobs):
        return False
    return len({replace(job, seed=0, members=job.members[:1]) for job in jobs}) == 1


def spreads(runs: Iterable[Run]) -> list[str]:
    """A section: members that differ in nothing but their seeds, each certified alone."""
    rows: list[Row] = []
    for run in runs:
        acrs = [float(own.mean()) for lane, own in earned_of(run).items() if lane.startswith("member-")]
        if len(acrs) > 1 and alike(run.trainings):
            ends = f"{min(acrs):.3f} to {max(acrs):.3f}"
            spread = f"{np.mean(acrs):.3f} ± {np.std(acrs, ddof=1):.3f}"
            rows.append([f"`{run.name}`", f"{run.sigma:g}", str(len(acrs)), spread, ends])
    about = [
        "Average radii of networks that were trained alike but for their seeds, each certified alone on the same",
        "images: mean and standard deviation, smallest and largest. Nothing is known of the seeds of other networks.",
    ]
    head = ["run", "sigma", "seeds", "ACR", "range"]
    return section("Spread over seeds", about, *([table(head, rows)] if rows else []))

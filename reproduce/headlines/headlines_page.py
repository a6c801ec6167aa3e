"""The table of docs/results.md that sets published average radii beside ours, one line each (``headlines.yaml``).

What has no run yet says how many device minutes away it is, by ``stretches.yaml``, and fills itself once one is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, final

import yaml
from paper_runs import Run, Runs
from paper_sweeps import entries
from paper_tables import ROOT, Row, filled, published, table
from stretch_plan import steps

from ringfence.sweep import document

FILE = ROOT / "reproduce" / "headlines.yaml"
HEAD = ("paper", "network", "sigma", "images", "published", "ours", "ours over published")
MEAN = "mean"
"""In the place of a lane: all members, each by itself."""


@final
@dataclass(frozen=True)
class Headline:
    """A published average radius, and the run of ours that stands beside it; fields as in the file."""

    paper: str
    folder: str
    list: str
    where: dict[str, Any]
    network: str
    training: str
    sigma: float
    of: str = ""
    images: int = 500
    draws: int = 100_000
    number: int = 1
    procedure: str = "fixed"
    lane: str = "main"
    step: str = ""

    def published(self) -> float:
        """What the paper prints."""
        rows = published(ROOT / "reproduce" / self.folder)[self.list]
        rows = rows["logs"] if isinstance(rows, dict) else rows
        (row,) = [one for one in rows if all(one.get(key) == value for key, value in self.where.items())]
        return float((row[self.of] if self.of else row)["acr"])

    def names(self, run: Run) -> bool:
        """Whether the run is what stands beside it."""
        known = run.trainings[0].name if run.trainings else ""
        asked = (self.training, self.sigma, self.images, self.draws, self.number, self.procedure)
        return asked == (known, run.sigma, run.inputs, run.n, run.size, run.procedure) and run.reducing is None

    def ours(self, run: Run) -> float:
        """The average radius of its lane there."""
        lanes = run.lanes((0.0,))
        if self.lane == MEAN:
            return mean(one.acr for name, one in lanes.items() if name.startswith("member-"))
        return lanes[self.lane].acr


def headlines(file: Path = FILE) -> Iterator[Headline]:
    """Every one of the file, in its order."""
    for entry in yaml.safe_load(file.read_text(encoding="utf-8")):
        for one in document.combinations(entry.pop("each", None)):
            sigma = {"sigma": one["sigma"]} if "sigma" in one else {}
            yield Headline(**sigma, **document.filled(entry, one))


def away(step: str) -> str:
    """What of the plan brings a run that is missing."""
    minutes = [sum(one.left) for one in steps(entries) if step and step in one.names]
    return f"not yet: {minutes[0]:.0f} device minutes" if minutes else "not run"


def measured(one: Headline, runs: Sequence[Run]) -> float | None:
    """The average radius of ours that stands beside it; None where there is no run yet."""
    run = next(filter(one.names, runs), None)
    return None if run is None else one.ours(run)


def row(one: Headline, ours: float | None) -> Row:
    """Its line of the table."""
    theirs = one.published()
    paper = f"[{one.paper}](../reproduce/{one.folder}/README.md)"
    head = [paper, one.network, f"{one.sigma:g}", f"{one.images:,}", f"{theirs:.3f}"]
    return [*head, away(one.step), ""] if ours is None else [*head, f"{ours:.3f}", f"{percent_off(ours, theirs):+.1f}%"]


def percent_off(ours: float, theirs: float) -> float:
    """How much larger ours is."""
    return 100 * (ours / theirs - 1)


def in_short(off: Sequence[float], of: int) -> str:
    """How many of so many there are, and how many per cent off what is published."""
    half = median(map(abs, off))
    ends = f"{min(off):+.1f}% to {max(off):+.1f}%"
    return f"{len(off)} of {of} have a run: {ends} off what is published, half of them by at most {half:.1f}%."


def pages() -> dict[Path, str]:
    """docs/results.md with its first table."""
    page, results = ROOT / "docs" / "results.md", ROOT / "results"
    runs = [run for folder in ("cifar10", "mnist") for run in Runs.under(results / folder)]
    found = [(one, measured(one, runs)) for one in headlines()]
    off = [percent_off(ours, one.published()) for one, ours in found if ours is not None]
    lines = [in_short(off, len(found)), "", *table(HEAD, [row(one, ours) for one, ours in found])]
    return {page: filled(page, {"headlines": "\n".join(lines)})}

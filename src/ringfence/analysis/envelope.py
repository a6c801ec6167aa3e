"""The best of several runs for each radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from ringfence.analysis.compare import refuse_other_data
from ringfence.analysis.metrics import RunMetrics
from ringfence.stats.norms import refuse_mixed


@final
@dataclass(frozen=True)
class EnvelopePoint:
    """The largest certified accuracy that any of several runs has at a radius, and which one has it.

    The choice is made per radius and after the fact, as Yang et al. (2022) tabulate over sigmas: no single classifier
    has this curve.
    """

    radius: float
    certified_accuracy: float
    run: str
    sound: bool


def envelope(runs: Sequence[RunMetrics]) -> list[EnvelopePoint]:
    """The best run of each radius, of those that can tell; all must be of one norm and of the same data."""
    refuse_mixed({run.path: run.norm for run in runs})
    refuse_other_data([(run.path, run.data) for run in runs], "the best of a radius")
    points = []
    for radius in sorted({radius for run in runs for radius in run.certified_accuracy}):
        able = [run for run in runs if radius in run.certified_accuracy]
        best = max(able, key=lambda run: run.certified_accuracy[radius])
        points.append(EnvelopePoint(radius, best.certified_accuracy[radius], best.name, best.sound))
    return points

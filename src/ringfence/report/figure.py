"""Figure: what is drawn, on the page and by ``ringfence plot``, before it is drawn; and what all figures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ringfence.report.lanes import Lane
from ringfence.rounding import written_down
from ringfence.types import FloatArray

Row = dict[str, Any]

MOST_LANES = 12
"""Lines that can still be told apart; where there are more, five evenly spaced lanes of each run are drawn."""
MOST_POINTS = 160
_LARGEST = 1e6
"""Stands for an infinite radius."""


@final
@dataclass(frozen=True)
class Figure:
    """A figure before it is drawn: kind (one of KINDS), its words, its rows, and the names in them.

    colours: number of each name's colour, so that a lane keeps its own in every figure of a page. radius: what an
    axis of radii is called.
    """

    kind: str
    title: str
    caption: str
    rows: list[Row]
    names: list[str]
    colours: list[int]
    radius: str = "l2 radius"


def drawn(lanes: Sequence[Lane]) -> list[Lane]:
    """The lanes that are drawn: all, or of a run with many lanes the first, the last and some between."""
    chosen: list[Lane] = []
    for run in dict.fromkeys(lane.run for lane in lanes):
        own = [lane for lane in lanes if lane.run == run]
        if len(lanes) > MOST_LANES and len(own) > 5:
            own = [own[place] for place in np.unique(np.linspace(0, len(own) - 1, 5).round().astype(int))]
        chosen += own
    return chosen


def steps(name: str, values: FloatArray) -> list[Row]:
    """An empirical distribution function as (x, share) rows, thinned to what a screen can show."""
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    last = np.append(ordered[1:] != ordered[:-1], True)  # of equal values only the highest step counts
    ordered, shares = ordered[last], shares[last]
    kept = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), MOST_POINTS)).round().astype(int))
    rows = [{"run": name, "x": float(f"{ordered[k]:.7g}"), "share": round(float(shares[k]), 6)} for k in kept]
    return [{"run": name, "x": rows[0]["x"], "share": 0.0}, *rows]


def in_tooltip(value: float, places: int) -> float:
    """As many decimals as a tooltip shows: a bound or a radius must not grow by being shown; JSON has no infinity."""
    return float(written_down(min(value, _LARGEST), places))

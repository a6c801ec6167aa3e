"""Draws a second of certifications beside the usual loop's: what a benchmark measures of them, and its two tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common import Bar, Grid

LOOP = "loop"


@dataclass(frozen=True)
class Rate:
    """Draws a second, of how many, in which form; how: the loop, or which settings; start: seconds before the first
    draw; plan: settings of the forward plan, none of the loop."""

    network: str
    how: str
    rate: float
    draws: int
    start: float
    plan: Mapping[str, Any]


def tables(found: Sequence[Rate], rates: str) -> tuple[list[Grid], Bar]:
    """The rates under this title, a network a row, and the plans that were chosen; the bar is the slowest of all."""
    loops = {one.network: one.rate for one in found if one.how == LOOP}
    certified = [one for one in found if one.how != LOOP]
    ways = list(dict.fromkeys(one.how for one in certified))
    over = {(one.network, one.how): f"{one.rate:,.0f} ({one.rate / loops[one.network]:.2f})" for one in certified}
    shown = [[name, f"{loop:,.0f}", *(over[name, how] for how in ways)] for name, loop in loops.items()]
    plans = [
        [one.network, one.how, one.plan["precision"], str(one.plan["batch"]), _forms(one.plan), f"{one.start:.1f}"]
        for one in certified
    ]
    grids = [
        Grid(rates, ["network", LOOP, *ways], shown),
        Grid("What was chosen", ["network", "run", "precision", "batch", "form", "start, s"], plans),
    ]
    worst = min(one.rate / loops[one.network] for one in certified)
    return grids, Bar("The slowest of all against the loop", "at least", 1.0, worst, "times")


def _forms(plan: Mapping[str, Any]) -> str:
    """The ways of computing that a plan has taken."""
    return ", ".join(key.replace("_", " ") for key, value in plan.items() if value is True) or "as it is"

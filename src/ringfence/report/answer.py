"""What a report opens with: one number, one sentence that says what it means, and the kind of picture that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from ringfence.report.figure import Figure
from ringfence.report.lanes import Lane
from ringfence.rounding import written, written_down
from ringfence.stats import clopper_pearson_lower, clopper_pearson_upper

OUTSIDE = 0.025
"""Probability left out on each side of an interval of 95%."""
_PICTURES = ("curve", "outcomes", "ecdf")
"""Kinds of figures that may open a page, the best first."""
_USUAL = 0.25


@final
@dataclass(frozen=True)
class Answer:
    """The number as it is written, what it is a share of in a few words, and the whole sentence."""

    number: str
    label: str
    sentence: str


def interval(hits: int, count: int) -> tuple[float, float]:
    """The two-sided 95% Clopper-Pearson interval over test sets of this size."""
    return float(clopper_pearson_lower(hits, count, OUTSIDE)), float(clopper_pearson_upper(hits, count, OUTSIDE))


def answer(lanes: Sequence[Lane]) -> Answer:
    """The answer of the first lane: the reader named it first, and choosing the best would be choosing by outcome."""
    lane = lanes[0]
    found = _judged(lane) if lane.columns.labelled.any() else _unlabelled(lane)
    beside = "" if len(lanes) == 1 else f" This is {lane.name}, the first of {len(lanes)} compared below."
    return Answer(found.number, found.label, found.sentence + beside)


def opening_picture(figures: Mapping[str, Figure], lanes: Sequence[Lane]) -> str | None:
    """The name of the picture that fits the first lane: a curve only where radii were found, not tried."""
    first = lanes[0]
    kinds = _PICTURES if first.claims_radius and not first.known_radius else ("outcomes", *_PICTURES)
    return next((kind for kind in kinds if kind in figures), None)


def headline_radius(lane: Lane) -> float:
    """Fixed before any outcome is seen: the radius that was tried, else sigma in the norm shown, else 0.25 of a log."""
    if lane.metrics.target is not None:
        return lane.metrics.target
    sigma = _USUAL if lane.config is None else lane.config.noise.sigma * lane.factor
    return float(f"{sigma:.3g}")


def _judged(lane: Lane) -> Answer:
    count = int(lane.columns.labelled.sum())
    radius = headline_radius(lane) if lane.claims_radius else 0.0
    (share,) = lane.metrics_at([radius]).certified_accuracy.values()
    low, high = interval(round(share * count), count)
    number = f"{100 * share:.1f}%"
    ends = f"{written_down(100 * low, 1)}% to {written_down(100 * high, 1, up=True)}%"
    of = f"{number} of {count:,} test inputs (95% interval {ends})"
    if not lane.claims_radius:
        return Answer(number, "answered rightly", f"{of} get the right class; no radius is claimed.")
    within = f"{lane.source.norm} radius {written(radius)}"
    if not lane.metrics.sound:
        told = "get the right class with a stated"
        return Answer(number, f"at {within}, not proven", f"{of} {told} {within}; nothing of this is proven.")
    sentence = f"{of} are classified rightly and certified: no change smaller than {within} alters the answer."
    return Answer(number, f"certified at {within}", sentence)


def _unlabelled(lane: Lane) -> Answer:
    """Without labels nothing is right or wrong: how many got an answer, and how far it holds for half of them."""
    share, count = 1 - lane.metrics.abstention, len(lane.records)
    radii = [record.radius for record in lane.records if record.prediction >= 0]
    far = ""
    if lane.claims_radius and radii:
        lower = float(np.sort(radii)[(len(radii) - 1) // 2])  # half of them reach it; a mean of two might not hold
        far = f"; half of these hold within {lane.source.norm} radius {written_down(lower, 3)} or more"
    sentence = f"{100 * share:.1f}% of {count:,} inputs get an answer{far}. They have no labels to be right about."
    return Answer(f"{100 * share:.1f}%", "answered", sentence)

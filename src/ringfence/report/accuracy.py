"""The data of the figures about what is certified: accuracy against radius with its bands, and p_A."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringfence.report.figure import MOST_POINTS, Figure, Row, drawn, names_of, steps
from ringfence.report.lanes import Lane
from ringfence.stats import clopper_pearson_lower, clopper_pearson_upper

_STEPS = (0.0125, 0.025, 0.05, 0.125, 0.25, 0.5, 1.0)
_OUTSIDE = 0.025
"""Probability left out on each side of a band of 95%."""


def radius_grid(largest: float) -> list[float]:
    """Multiples of a round step from 0 to the first one at or above largest."""
    step = next((step for step in _STEPS if largest / step <= MOST_POINTS), largest / MOST_POINTS)
    return [round(step * place, 6) for place in range(int(np.ceil(largest / step)) + 1)]


def accuracy_rows(lane: Lane, radii: Sequence[float] | None) -> list[Row]:
    """Certified accuracy of one lane at these radii, with 95% bands over test sets of this size.

    The bands are Clopper-Pearson: they speak of other inputs from the same source, not of the noise, which
    alpha answers for.
    """
    reached = lane.metrics_at(radii).certified_accuracy
    count = int(lane.labelled.sum())
    if not reached or not count:
        return []
    hits = np.array([round(share * count) for share in reached.values()], np.int64)
    low, high = clopper_pearson_lower(hits, count, _OUTSIDE), clopper_pearson_upper(hits, count, _OUTSIDE)
    pairs = zip(reached.items(), low, high, strict=True)
    return [
        {"run": lane.name, "radius": r, "accuracy": share, "low": round(float(a), 6), "high": round(float(b), 6)}
        for (r, share), a, b in pairs
    ]


def curve(lanes: Sequence[Lane]) -> Figure | None:
    """Certified accuracy against radius; runs that tried known radii are points, all others steps."""
    shown = [lane for lane in drawn(lanes) if lane.labelled.any() and lane.claims_radius]
    free = [lane for lane in shown if not lane.known_radius]
    largest = max((float(lane.column("radius").max()) for lane in free), default=0.0)
    rows: list[Row] = []
    for lane in shown:
        radii = tried(lane) if lane.known_radius else radius_grid(largest)
        own = accuracy_rows(lane, radii)
        if not lane.known_radius:  # beyond its first zero a curve has nothing to say
            own = own[: next((place + 1 for place, row in enumerate(own) if not row["accuracy"]), len(own))]
        rows += [{**row, "tried": lane.known_radius} for row in own]
    if not rows:
        return None
    caption = (
        "Share of the test inputs answered rightly with at least this radius. Bands: 95% intervals for a finite test "
        "set (Clopper-Pearson). Dots: runs that tried only these radii. "
        "Dashed rules: the most that a run's draws could prove if all of them agreed."
    )
    return Figure(
        "curve", "Certified accuracy against radius", caption, rows + ceilings(shown), *names_of(shown, lanes)
    )


def tried(lane: Lane) -> list[float]:
    """0 and the radii that a known-radius lane tried to prove."""
    larger = lane.config.procedure.settings.get("larger") or () if lane.config else ()
    targets = {record.target for record in lane.records if record.target is not None}
    return sorted({0.0, *targets, *map(float, larger)})


def ceilings(lanes: Sequence[Lane]) -> list[Row]:
    """The ideal radius of each lane's draws, one row per distinct one; lanes that share it are named together."""
    found: dict[float, list[str]] = {}
    for lane in lanes:
        if lane.ceiling is not None and not lane.known_radius:
            found.setdefault(round(lane.ceiling, 6), []).append(lane.name)
    return [{"ceiling": radius, "run": names[0], "of": ", ".join(names)} for radius, names in found.items()]


def ecdf(lanes: Sequence[Lane]) -> Figure | None:
    """Distribution of p_A, estimated from the counts."""
    shown = [lane for lane in drawn(lanes) if np.isfinite(lane.share).any()]
    rows = [row for lane in shown for row in steps(lane.name, lane.share[np.isfinite(lane.share)])]
    if not rows:
        return None
    caption = (
        "Share of the inputs whose chosen class got at most this share of the draws that bound it. "
        "ACR is one number for this whole curve, and weights its right end most."
    )
    return Figure("ecdf", "Distribution of p_A", caption, rows, *names_of(shown, lanes))

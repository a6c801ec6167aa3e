"""The figures of lanes, as rows: what is drawn, on the page and by ``ringfence plot``, is exactly this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from ringfence.analysis.stages import stage_summary
from ringfence.errors import ArgumentError, check_word
from ringfence.report.answer import interval
from ringfence.report.figure import MOST_POINTS, Figure, Row, drawn, in_tooltip, steps
from ringfence.report.lanes import Lane
from ringfence.rounding import written
from ringfence.types import ABSTAIN

_STEPS = (0.0125, 0.025, 0.05, 0.125, 0.25, 0.5, 1.0)
_MOST_DOTS = 1000


@final
@dataclass(frozen=True)
class Kind:
    """A figure of lanes: its words, the rows that a lane among those shown brings (none: it is left out), and which
    lanes of a page may be shown."""

    title: str
    caption: str
    rows: Callable[[Lane, Sequence[Lane]], list[Row]]
    lanes: Callable[[Sequence[Lane]], list[Lane]] = drawn


def radius_grid(largest: float) -> list[float]:
    """Multiples of a round step from 0 to the first one at or above largest."""
    step = next((step for step in _STEPS if largest / step <= MOST_POINTS), largest / MOST_POINTS)
    return [round(step * place, 6) for place in range(int(np.ceil(largest / step)) + 1)]


def _curve(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    """Certified accuracy at the radii of a lane, with 95% bands over test sets of this size, and its ceiling.

    The bands are Clopper-Pearson: they speak of other inputs from the same source, not of the noise, which alpha
    answers for. Runs that tried known radii are points beside others, which are steps on a grid that they share;
    among themselves two points make no curve, and their outcomes say more.
    """
    count = int(lane.columns.labelled.sum())
    free = [float(one.columns.radius.max()) for one in lanes if one.claims_radius and not one.known_radius]
    if not count or not lane.claims_radius or not free:
        return []
    reached = lane.metrics_at(_tried(lane) if lane.known_radius else radius_grid(max(free))).certified_accuracy
    rows: list[Row] = []
    for radius, share in reached.items():
        low, high = interval(round(share * count), count)
        band = {"low": round(low, 6), "high": round(high, 6), "tried": lane.known_radius}
        rows.append({"run": lane.name, "radius": radius, "accuracy": share, **band})
        if radius and not share and not lane.known_radius:
            break  # beyond its first zero a curve has nothing to say; one point is no curve
    return rows + _ceiling(lane, lanes)


def _outcomes(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    """What became of the inputs of a lane that tried known radii, or that claims none; the largest radius first."""
    judged = [record for record in lane.records if record.label is not None]
    if not judged or (lane.claims_radius and not lane.known_radius):
        return []
    right = [record.radius for record in judged if record.prediction == record.label]
    withheld = sum(record.prediction == ABSTAIN for record in judged)
    rows: list[Row] = []

    def add(outcome: str, inputs: int, order: float) -> None:
        share = round(inputs / len(judged), 6)
        rows.append({"run": lane.name, "outcome": outcome, "inputs": inputs, "share": share, "order": order})

    beyond = 0
    for radius in reversed([one for one in _tried(lane) if one > 0] if lane.claims_radius else []):
        reached = sum(one >= radius for one in right)
        add(f"right, radius {written(radius)}", reached - beyond, -radius)
        beyond = reached
    add("right, no radius" if rows else "right", len(right) - beyond, 0)
    add("abstained", withheld, 1)
    add("wrong", len(judged) - len(right) - withheld, 2)
    return [row for row in rows if row["inputs"]]


def _tried(lane: Lane) -> list[float]:
    """0 and the radii that a known-radius lane tried to prove."""
    targets = {record.target for record in lane.records if record.target is not None}
    return sorted({0.0, *targets, *(lane.factor * one for one in (lane.test.targets if lane.test else ()))})


def _ceiling(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    """The ideal radius of a lane's draws; of lanes that share one the first names them all."""
    if lane.ceiling is None or lane.known_radius:
        return []
    radius = round(lane.ceiling, 6)
    same = [o for o in lanes if o.ceiling is not None and round(o.ceiling, 6) == radius and not o.known_radius]
    row = {"ceiling": radius, "run": lane.name, "of": ", ".join(one.name for one in same)}
    return [row] if same[0] is lane else []


def _ecdf(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    known = lane.share[np.isfinite(lane.share)]
    return steps(lane.name, known) if known.size else []


def _draws(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    """For runs whose inputs differ in it."""
    draws = lane.columns.draws.astype(np.float64)
    return steps(lane.name, draws) if np.unique(draws).size > 1 else []


def _stages(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    if not lane.known_radius or not lane.records[0].stages:
        return []
    return [
        {"run": lane.name, "look": at.index, "draws": at.draws, "outcome": outcome, "percent": round(percent, 4)}
        for at in stage_summary(lane.records).shares
        for outcome, percent in (("certified", at.asc), ("gave up", at.asa))
    ]


def _mechanisms(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    rows: list[Row] = []
    for name in lane.records[0].radii if len(lane.records[0].radii) > 1 else ():
        radii = np.array([record.radii.get(name, 0.0) for record in lane.records])
        finite = radii[np.isfinite(radii)]
        mean = float(finite.mean()) if finite.size else 0.0
        rows.append(
            {"run": lane.name, "mechanism": name.replace("_", "-"), "mean": mean, "median": float(np.median(radii))}
        )
    return rows


def _simplex(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    """For runs that bound the runner-up by itself."""
    p_a, p_b = lane.columns.p_a, lane.columns.p_b
    if not (np.isfinite(p_a) & (p_b < 1 - p_a - 1e-9)).any():
        return []
    kept = np.unique(np.linspace(0, len(p_a) - 1, min(len(p_a), _MOST_DOTS)).astype(int))
    return [
        {
            "run": lane.name,
            "input": int(lane.columns.input_id[place]),
            "p_a": in_tooltip(p_a[place], 5),
            "p_b": -in_tooltip(-p_b[place], 5),
            "radius": in_tooltip(lane.records[place].radius, 4),
        }
        for place in kept[np.isfinite(p_a[kept]) & np.isfinite(p_b[kept])]
    ]


def _frontier(lane: Lane, lanes: Sequence[Lane]) -> list[Row]:
    found = lane.metrics
    reached = {f"at {written(radius)}": share for radius, share in found.certified_accuracy.items()}
    facts = {"accuracy": found.accuracy, "acr": found.acr, "abstention": found.abstention}
    return [{"run": lane.run, "theta": lane.theta, **facts, **reached}]


def _thresholds(lanes: Sequence[Lane]) -> list[Lane]:
    """Every lane that is a threshold of ACES."""
    found = [lane for lane in lanes if lane.theta is not None and lane.metrics.accuracy is not None]
    return sorted(found, key=lambda lane: (lane.run, lane.theta))


KINDS: dict[str, Kind] = {
    "curve": Kind(
        "Certified accuracy against radius",
        "Share of the test inputs answered rightly with at least this radius. Bands: 95% intervals for a finite test "
        "set (Clopper-Pearson). Dots: runs that tried only these radii. "
        "Dashed rules: the most that a run's draws could prove if all of them agreed.",
        _curve,
    ),
    "outcomes": Kind(
        "What became of the inputs",
        "Share of the test inputs by their outcome, for runs that tried known radii or claimed none: right with the "
        "radius proved, right without, withheld, wrong.",
        _outcomes,
    ),
    "ecdf": Kind(
        "Distribution of p_A",
        "Share of the inputs whose chosen class got at most this share of the draws that bound it. "
        "ACR is one number for this whole curve, and weights its right end most.",
        _ecdf,
    ),
    "draws": Kind(
        "Draws per input", "Share of the inputs decided within so many draws; easy inputs stop early.", _draws
    ),
    "stages": Kind(
        "Where inputs were decided",
        "Percent of the inputs certified or given up at each stage or look (ASC and ASA of Horváth et al.).",
        _stages,
    ),
    "mechanisms": Kind(
        "Radius by mechanism",
        "Mean radius over all inputs by each mechanism, from the same counts at the same alpha.",
        _mechanisms,
    ),
    "simplex": Kind(
        "Bounds on the simplex",
        f"Each dot is an input: lower bound on its class against upper bound on every other. At most {_MOST_DOTS:,} "
        "per run.",
        _simplex,
    ),
    "frontier": Kind(
        "ACES: the frontier",
        "One point per threshold theta: how much is right at radius 0 against the average certified radius. A theta is "
        "chosen for all inputs; choosing one per input from the same counts would not be sound.",
        _frontier,
        _thresholds,
    ),
}
"""Every figure of lanes by name."""

OTHERS = ("attacks", "training-loss", "training-accuracy", "variance-ratio", "variance-success", "variance-radius")
"""Names of the figures about what was named beside runs."""


def lane_figures(lanes: Sequence[Lane]) -> dict[str, Figure]:
    """Every figure that these lanes hold the data of, by name."""
    places = {lane.name: place for place, lane in enumerate(drawn(lanes))}
    found = {}
    for name, kind in KINDS.items():
        among = kind.lanes(lanes)
        rows = [row for lane in among for row in kind.rows(lane, among)]
        runs = list(dict.fromkeys(str(row["run"]) for row in rows))
        colours = [places.get(run, number) for number, run in enumerate(runs)]
        if rows:
            radius = " or ".join(dict.fromkeys(lane.radius_in_words for lane in among))
            found[name] = Figure(name, kind.title, kind.caption, rows, runs, colours, radius)
    return found


def figure(kind: str | None, lanes: Sequence[Lane], others: Mapping[str, Figure] | None = None) -> Figure:
    """The named figure of these lanes or among the others, without a name the first; or an error that says why not."""
    known = (*KINDS, *OTHERS)
    if kind is not None:
        check_word("kind", kind, known, "Use curve.")
    there = lane_figures(lanes) | dict(others or {})
    kind = kind or next(iter(there), "curve")
    if kind not in there:
        remedy = f"These runs have {', '.join(there)}." if there else "These runs have no figure."
        raise ArgumentError("kind", "the runs must hold this figure's data", kind, remedy)
    return there[kind]

"""The figures of lanes, as rows: what is drawn, on the page and by ``ringfence plot``, is exactly this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ringfence.analysis.stages import stage_summary
from ringfence.errors import ArgumentError
from ringfence.report.figure import MOST_POINTS, Figure, Row, drawn, names_of, rounded_down, steps
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
    targets = {record.target for record in lane.records if record.target is not None}
    return sorted({0.0, *targets, *(lane.test.targets if lane.test else ())})


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


def draws(lanes: Sequence[Lane]) -> Figure | None:
    """Share of the inputs decided within so many draws, for runs whose inputs differ in it."""
    shown = [lane for lane in drawn(lanes) if np.unique(lane.column("draws")).size > 1]
    rows = [row for lane in shown for row in steps(lane.name, lane.column("draws"))]
    if not rows:
        return None
    caption = "Share of the inputs decided within so many draws; easy inputs stop early."
    return Figure("draws", "Draws per input", caption, rows, *names_of(shown, lanes))


def stages(lanes: Sequence[Lane]) -> Figure | None:
    """Where runs at a known radius stopped: percent of the inputs certified and given up at each look."""
    rows: list[Row] = []
    chosen = []
    for lane in drawn(lanes):
        if not lane.known_radius or not lane.records[0].stages:
            continue
        chosen.append(lane)
        for share in stage_summary(lane.records).shares:
            place = {"run": lane.name, "look": share.index, "draws": share.draws}
            rows.append({**place, "outcome": "certified", "percent": round(share.asc, 4)})
            rows.append({**place, "outcome": "gave up", "percent": round(share.asa, 4)})
    if not rows:
        return None
    caption = "Percent of the inputs certified or given up at each stage or look (ASC and ASA of Horváth et al.)."
    return Figure("stages", "Where inputs were decided", caption, rows, *names_of(chosen, lanes))


def mechanisms(lanes: Sequence[Lane]) -> Figure | None:
    """Mean radius of the certified inputs by every recorded mechanism, on the same bounds."""
    rows = []
    chosen = [lane for lane in drawn(lanes) if len(lane.records[0].radii) > 1]
    for lane in chosen:
        for name in lane.records[0].radii:
            radii = np.array([record.radii.get(name, 0.0) for record in lane.records])
            finite = radii[np.isfinite(radii)]
            mean = float(finite.mean()) if finite.size else 0.0
            rows.append({"run": lane.name, "mechanism": name, "mean": mean, "median": float(np.median(radii))})
    if not rows:
        return None
    caption = "Mean radius over all inputs by each mechanism, from the same counts at the same alpha."
    return Figure("mechanisms", "Radius by mechanism", caption, rows, *names_of(chosen, lanes))


def simplex(lanes: Sequence[Lane]) -> Figure | None:
    """The bounds (p_a, p_b) of each input, for runs that bound the runner-up by itself."""
    rows: list[Row] = []
    chosen = []
    for lane in drawn(lanes):
        p_a, p_b = lane.column("p_a"), lane.column("p_b")
        if not (np.isfinite(p_a) & (p_b < 1 - p_a - 1e-9)).any():
            continue
        chosen.append(lane)
        kept = np.unique(np.linspace(0, len(p_a) - 1, min(len(p_a), 1000)).astype(int))
        rows += [
            {
                "run": lane.name,
                "input": int(lane.ids[place]),
                "p_a": rounded_down(p_a[place], 5),
                "p_b": -rounded_down(-p_b[place], 5),
                "radius": rounded_down(lane.records[place].radius, 4),
            }
            for place in kept[np.isfinite(p_a[kept]) & np.isfinite(p_b[kept])]
        ]
    if not rows:
        return None
    caption = (
        "Each dot is an input: lower bound on its class against upper bound on every other. At most 1,000 per run."
    )
    return Figure("simplex", "Bounds on the simplex", caption, rows, *names_of(chosen, lanes))


def frontier(lanes: Sequence[Lane]) -> Figure | None:
    """ACES: accuracy against ACR for every threshold theta of every run whose lanes are thresholds."""
    rows = []
    for lane in lanes:
        if not lane.lane.startswith("theta=") or lane.metrics.accuracy is None:
            continue
        found, theta = lane.metrics, float(lane.lane.removeprefix("theta="))
        reached = {f"at {radius:g}": share for radius, share in found.certified_accuracy.items()}
        facts = {"accuracy": found.accuracy, "acr": found.acr, "abstention": found.abstention}
        rows.append({"run": lane.run, "theta": theta, **facts, **reached})
    rows.sort(key=lambda row: (row["run"], row["theta"]))
    if not rows:
        return None
    caption = (
        "One point per threshold theta: how much is right at radius 0 against the average certified radius. A theta is "
        "chosen for all inputs; choosing one per input from the same counts would not be sound."
    )
    runs = list(dict.fromkeys(str(row["run"]) for row in rows))
    return Figure("frontier", "ACES: the frontier", caption, rows, runs, list(range(len(runs))))


KINDS: dict[str, Callable[[Sequence[Lane]], Figure | None]] = {
    "curve": curve,
    "ecdf": ecdf,
    "draws": draws,
    "stages": stages,
    "mechanisms": mechanisms,
    "simplex": simplex,
    "frontier": frontier,
}
"""Every figure of lanes by name; each answers None where the lanes do not hold its data."""


OTHERS = ("attacks", "training-loss", "training-accuracy", "variance-ratio", "variance-success", "variance-radius")
"""Names of the figures about what was named beside runs."""


def figure(kind: str, lanes: Sequence[Lane], others: Mapping[str, Figure] | None = None) -> Figure:
    """The named figure of these lanes or among the others, or an error that says why there is none."""
    known, beside = (*KINDS, *OTHERS), others or {}
    if kind not in known:
        raise ArgumentError("kind", f"must be one of {', '.join(known)}", repr(kind), "Use curve.")
    found = KINDS[kind](lanes) if kind in KINDS else beside.get(kind)
    if found is None:
        there = [*(name for name, of in KINDS.items() if of(lanes)), *beside]
        remedy = f"These runs have {', '.join(there)}." if there else "These runs have no figure."
        raise ArgumentError("kind", "the runs must hold this figure's data", kind, remedy)
    return found

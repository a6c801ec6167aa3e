"""The data of every figure, as rows: what is drawn, on the page and by ``ringfence plot``, is exactly this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ringfence.analysis.stages import stage_summary
from ringfence.errors import ArgumentError
from ringfence.report.accuracy import curve, ecdf
from ringfence.report.figure import Figure, Row, drawn, names_of, rounded_down, steps
from ringfence.report.lanes import Lane


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


OTHERS = (
    "attacks", "training-loss", "training-accuracy", "variance-ratio", "variance-success", "variance-radius",
)  # fmt: skip
"""Names of the figures about what was named beside runs."""


def figure(kind: str, lanes: Sequence[Lane], others: Mapping[str, Figure] | None = None) -> Figure:
    """The named figure of these lanes or among the others, or an error that says why there is none."""
    known, beside = (*KINDS, *OTHERS), others or {}
    if kind not in known:
        raise ArgumentError("--kind", f"must be one of {', '.join(known)}", repr(kind), "Use curve.")
    found = KINDS[kind](lanes) if kind in KINDS else beside.get(kind)
    if found is None:
        there = [*(name for name, of in KINDS.items() if of(lanes)), *beside]
        remedy = f"These runs have {', '.join(there)}." if there else "These runs have no figure."
        raise ArgumentError("--kind", "the runs must hold this figure's data", kind, remedy)
    return found

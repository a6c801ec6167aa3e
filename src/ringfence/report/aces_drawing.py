"""Pictures of an ACES run: its frontier beside the certification network alone, its selector's medians and radii."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.analysis.aces import Answers, ThetaMetrics
from ringfence.analysis.aces_runs import AcesRun
from ringfence.progress import followed
from ringfence.report import need
from ringfence.report.drawing import axis, coloured, marks
from ringfence.report.figure import Row
from ringfence.report.rendering import plain, save_picture
from ringfence.types import BoolArray, FloatArray

BLUE, ORANGE, GREEN = "#1f5fbf", "#d9772b", "#2e8b57"
OURS, THEIRS = "ACES, by theta", "certification network alone, by sigma"
_LOOKS: dict[str, tuple[str, list[int], str, int]] = {
    OURS: (BLUE, [1, 0], "circle", 9),
    THEIRS: (GREEN, [2, 3], "triangle", -7),
}
"""Colour, dashes, shape, and how far below a point its name stands."""
APART = 0.07
"""Of the axes' height and width: labels nearer than that to another one are left out."""
MOST_BINS = 25


def frontier_specification(
    points: Sequence[ThetaMetrics], radii: Sequence[float | None] = (None,), baseline: Sequence[ThetaMetrics] = ()
) -> dict[str, Any]:
    """Natural accuracy against ACR (None) and against certified accuracy at radii; baseline's points name a sigma."""
    alt = need("altair")
    groups = {OURS: list(points), THEIRS: sorted(baseline, key=lambda point: point.theta)}
    shown = {name: some for name, some in groups.items() if some}
    return plain(alt.hconcat(*(_panel(alt, shown, radius) for radius in radii)))


def _panel(alt: Any, groups: dict[str, list[ThetaMetrics]], radius: float | None) -> Any:
    title = "average certified radius" if radius is None else f"certified accuracy at {radius:g} (%)"
    places = {name: _places(points, radius) for name, points in groups.items()}
    low, high = (of(np.concatenate(list(places.values())), axis=0) for of in (np.min, np.max))
    least = (1.0, 0.01 if radius is None else 1.0)  # thresholds that are all alike: no axis from 99.9999 to 100.0001
    room = np.maximum(high - low, least) * (0.12, 0.08)
    ends = np.stack([low - room, high + room])
    taken: list[FloatArray] = []
    rows: list[Row] = []
    for name, points in groups.items():
        side = -1.0 if name == OURS else 1.0  # the frontier falls to the right and the baseline rises: room on each
        named = _labelled_points((places[name] - ends[0]) / (ends[1] - ends[0]), taken, side)
        for at, (point, (x, y)) in enumerate(zip(points, places[name].tolist(), strict=True)):
            label = f"{point.theta:g}" if at in named else ""
            rows.append({"run": name, "x": x, "y": y, "at": point.theta, "label": label})
    looks = {name: _LOOKS[name] for name in groups}
    dashes, shapes = (alt.Scale(domain=list(looks), range=[look[of] for look in looks.values()]) for of in (1, 2))
    channels = {
        "x": axis(alt, "X", "x", "natural accuracy (%)", {"tickCount": 6}, domain=ends[:, 0].tolist(), nice=False),
        "y": axis(alt, "Y", "y", title, {"tickCount": 8}, domain=ends[:, 1].tolist(), nice=False),
        "color": coloured(alt, "run", {n: look[0] for n, look in looks.items()}, orient="top", symbolStrokeWidth=0),
    }
    dash = alt.StrokeDash("run:N", scale=dashes, legend=None)
    dots = {"filled": True, "size": 30, "opacity": 1}
    return alt.layer(
        marks(alt, rows, "line", {"strokeWidth": 1.5}, order="at:Q", strokeDash=dash, **channels),
        marks(alt, rows, "point", dots, shape=alt.Shape("run:N", scale=shapes), **channels),
        *(
            marks(
                alt,
                [row for row in rows if row["run"] == name],
                "text",
                {"align": "right", "dx": -5, "dy": look[3], "fontSize": 10},
                text="label:N",
                **channels,
            )
            for name, look in looks.items()
        ),
    ).properties(width=260, height=260)


def medians_specification(
    medians: FloatArray, certifiable: BoolArray, thetas: Sequence[float], what: str, measured: str
) -> dict[str, Any]:
    """Inputs by the median of what their selector measured, those certified (what) and the others: Horváth et al.,
    compositional architectures, figure 3.

    medians: the smallest threshold that half of the draws reach, so that the grid's thresholds are the only edges.
    """
    alt = need("altair")
    grid = np.unique([0.0, *(theta for theta in thetas if theta < medians.max()), medians.max()])
    edges = np.unique([*grid[:: -(-(len(grid) - 1) // MOST_BINS)], medians.max()])
    below = np.zeros(len(edges) - 1, np.int64)
    rows: list[Row] = []
    for group, name in ((certifiable, what), (~certifiable, "others")):
        # A bin holds what lies above its lower and up to its upper edge.
        above = below + np.bincount(np.searchsorted(edges, medians[group]) - 1, minlength=len(below))
        bars = zip(edges[:-1].tolist(), edges[1:].tolist(), below.tolist(), above.tolist(), strict=True)
        rows += [{"group": name, "x": x, "x2": x2, "y": y, "y2": y2} for x, x2, y, y2 in bars if y2 > y]
        below = above
    title, ends = f"median {measured} over the noise", [0, float(edges[-1])]
    shown = marks(
        alt,
        rows,
        "bar",
        x=axis(alt, "X", "x", title, domain=ends),
        x2="x2:Q",
        y=axis(alt, "Y", "y", "inputs"),
        y2="y2:Q",
        color=coloured(alt, "group", {what: BLUE, "others": ORANGE}, orient="top-right"),
    )
    return plain(shown.properties(width=400, height=260))


def selection_specification(answers: Sequence[Answers]) -> dict[str, Any]:
    """Radii of the selection by percentile, negative where the core is selected, 0 for abstentions: figure 6 there."""
    alt = need("altair")
    rows: list[Row] = []
    for one in answers:
        signed = np.sort(np.where(one.bit == 1, one.bit_radius, np.where(one.bit == 0, -one.bit_radius, 0.0)))
        at = 100 * (np.arange(len(signed)) + 0.5) / len(signed)
        rows += [{"theta": one.theta, "x": x, "y": y} for x, y in zip(at.tolist(), signed.tolist(), strict=True)]
    lines = marks(
        alt,
        rows,
        "line",
        {"strokeWidth": 1.5},
        x=axis(alt, "X", "x", "percentile of inputs", domain=[0, 100]),
        y=axis(alt, "Y", "y", "signed radius of the selection"),
        # The largest theta has the highest line, and the highest place in the legend.
        color=alt.Color("theta:O", sort="descending", scale=alt.Scale(scheme="viridis", reverse=True)),
    )
    tie = marks(alt, [{"y": 0}], "rule", {"color": "#999999", "strokeWidth": 0.6}, y="y:Q")
    return plain(alt.layer(tie, lines).properties(width=360, height=280))


def _places(points: Sequence[ThetaMetrics], radius: float | None) -> FloatArray:
    """Natural accuracy and height (points, 2)."""
    heights = [point.acr or 0.0 if radius is None else 100 * point.certified_accuracy[radius] for point in points]
    natural = [100 * (point.natural_accuracy or 0.0) for point in points]
    return np.array([natural, heights]).T.reshape(-1, 2)


def _labelled_points(shares: FloatArray, taken: list[FloatArray], side: float) -> set[int]:
    """Points whose name is written, the ends first, each only where no other name is near; taken grows by them."""
    found = set()
    for at in sorted(range(len(shares)), key=lambda at: at not in (0, len(shares) - 1)):
        place = shares[at] + (0.0, side * APART / 2)
        if all((np.abs(place - other) > APART).any() for other in taken):
            taken.append(place)
            found.add(at)
    return found


def save_pictures(
    run: AcesRun, points: Sequence[ThetaMetrics], others: Sequence[ThetaMetrics], radii: Sequence[float], out: Path
) -> list[Path]:
    """frontier.png, entropy.png and selection.png."""
    positive = [r for r in radii if r > 0 and points[-1].certified_accuracy[r] > 0][:2]
    answers = run.answers()
    everything, at = answers[-1], positive[0] if positive else 0.0
    certifiable = (everything.prediction == everything.label) & (everything.radius >= at)
    what = f"certified at {at:g} with theta {everything.theta:g}"
    pictures = {
        "frontier": frontier_specification(points, [None, *positive], others),
        "entropy": medians_specification(run.medians(), certifiable, list(run.lanes), what, run.measured),
        "selection": selection_specification(answers[:: max(1, (len(answers) - 1) // 10)]),
    }
    written = [out / f"{name}.png" for name in pictures]
    for path, picture in followed(list(zip(written, pictures.values(), strict=True)), "drawing"):
        save_picture(picture, path)
    return written

"""A map of the simplex, with a run's inputs over it: one drawing, for pictures and for the interactive page."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.analysis.simplex import SimplexMap, SimplexPoints
from ringfence.report import need
from ringfence.report.drawing import axis, coloured, marks, tooltips
from ringfence.report.figure import Row
from ringfence.report.rendering import plain
from ringfence.types import FloatArray

COLOURS = {
    "one-sided": "#1f5fbf",
    "renyi": "#c0392b",
    "analytic-dp": "#2e8b57",
    "pixeldp": "#8e5ea2",
    "neyman-pearson": "#222222",
    "none": "#999999",
}
"""One colour per mechanism in every drawing; blue and red are the lines of Cullen et al.'s figures."""
_GREYS = ("#8c8c8c", "#d9d9d9")
_WIDTH, _HEIGHT = 760, 420
_MOST_CELLS = 15_000
"""Cells a browser redraws without a pause; finer maps are thinned."""


def simplex_specification(data: SimplexMap, points: SimplexPoints | None = None) -> dict[str, Any]:
    """Vega-Lite of a map, with a run's points over it where given; hovering names every radius, the wheel zooms.

    Colour is the statistic, white the tie, grey where only one of the two certifies; lines bound where each single
    mechanism is the largest.
    """
    alt = need("altair")
    layers = [_cells(alt, data), *_alone(alt, data), *_borders(alt, data), *(_dots(alt, points) if points else [])]
    title = alt.Title(simplex_title(data), subtitle=_words(data, points), anchor="start", offset=12)
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return plain(chart.properties(width=_WIDTH, height=_HEIGHT, title=title))


def simplex_title(data: SimplexMap) -> str:
    """What is drawn, in a line."""
    sign = "/" if data.statistic == "ratio" else "-"
    return f"Certified radius: {data.left} {sign} {data.right} at sigma {data.sigma:g}"


def _cells(alt: Any, data: SimplexMap) -> Any:
    names = list(data.members)
    rows, columns, half = _places(data, data.inside)
    radii = np.stack([data.members[name][rows, columns] for name in names], axis=1)
    value, best = data.value[rows, columns], radii.argmax(1)
    drawn = np.isfinite(value) & ((value > 0) | (data.statistic == "difference"))
    values = [
        {
            **_square(data, row, column, half),
            "value": float(f"{one:.4g}") if shown else None,
            "largest": names[winner] if own.max() > 0 else "none",
            **{name: float(f"{radius:.4g}") for name, radius in zip(names, own, strict=True)},
        }
        for row, column, one, shown, winner, own in zip(rows, columns, value, drawn, best, radii, strict=True)
    ]
    told = tooltips(alt, E0="~g", E1="~g", value="~g", largest="N", **dict.fromkeys(names, "~g"))
    colour = alt.Color("value:Q", title=data.statistic, scale=_scale(alt, data.statistic, value[drawn]))
    return _squares(alt, values, color=colour, tooltip=told).interactive()


def _scale(alt: Any, statistic: str, finite: FloatArray) -> Any:
    """Colours as far as 95% of the values reach on either side of the tie."""
    if statistic == "ratio":
        reach = max(float(np.exp(np.quantile(np.abs(np.log(finite)), 0.95))), 1.001) if finite.size else 2.0
        kind, domain = "log", [1 / reach, reach]
    else:
        reach = max(float(np.quantile(np.abs(finite), 0.95)), 1e-3) if finite.size else 1.0
        kind, domain = "linear", [-reach, reach]
    return alt.Scale(type=kind, scheme="purpleorange", domain=domain, reverse=True, clamp=True)


def _places(data: SimplexMap, where: NDArray[np.bool_]) -> tuple[Any, Any, float]:
    """Rows and columns of the cells that are drawn, and half the side of one."""
    stride = max(1, int(np.ceil(np.sqrt(data.inside.sum() / _MOST_CELLS))))
    rows, columns = np.nonzero(where)
    kept = (rows % stride == 0) & (columns % stride == 0)
    return rows[kept], columns[kept], data.step * stride / 2


def _square(data: SimplexMap, row: int, column: int, half: float) -> Row:
    """A cell's sides and middle; each reaches a little under its neighbour, so that no seam shows."""
    x, y = float(data.e0[column]), float(data.e1[row])
    sides = {"x": x - half, "x2": x + 1.3 * half, "y": y - half, "y2": y + 1.3 * half, "E0": x, "E1": y}
    return {name: round(value, 5) for name, value in sides.items()}


def _squares(alt: Any, values: list[Row], **channels: Any) -> Any:
    ticks = {"grid": False, "tickCount": 6}
    x = axis(alt, "X", "x", "E0, the largest class probability", ticks, domain=[0, 1])
    y = axis(alt, "Y", "y", "E1, the second largest", ticks, domain=[0, 0.5])
    return marks(alt, values, "rect", {"clip": True}, x=x, x2="x2:Q", y=y, y2="y2:Q", **channels)


def _alone(alt: Any, data: SimplexMap) -> list[Any]:
    """Flat grey where only one of the two certifies: their ratio is infinite or 0 there."""
    sides = ((data.left, data.left_radius, data.right_radius), (data.right, data.right_radius, data.left_radius))
    values: list[Row] = []
    greys: dict[str, str] = {}
    for (name, own, other), grey in zip(sides, _GREYS, strict=True):
        where = data.inside & (own > 0) & (other == 0)
        if data.statistic == "ratio" and where.any():
            rows, columns, half = _places(data, where)
            words = f"only {name} certifies"
            greys[words] = grey
            values += [{**_square(data, *at, half), "only": words} for at in zip(rows, columns, strict=True)]
    return [_squares(alt, values, color=coloured(alt, "only", greys))] if values else []


def _borders(alt: Any, data: SimplexMap) -> list[Any]:
    """Around the region of every mechanism that is the largest somewhere, but not everywhere."""
    values: list[Row] = []
    colours: dict[str, str] = {}
    for name, radius in data.members.items():
        share = float(data.largest(name)[data.inside].mean())
        if not (0 < share < 1 and len(data.members) > 1):
            continue
        others = np.max([other for key, other in data.members.items() if key != name], axis=0)
        lead = np.where(data.inside, radius - others, np.nan)
        words = f"{name} is the largest: {share:.0%}"
        style = {"region": words, "order": min(len(colours), 2)}
        colours[words] = COLOURS.get(name, "black")
        for number, path in enumerate(zero_lines(data.e0, data.e1, lead)):
            line = {**style, "path": number}
            values += [{**line, "x": round(x, 5), "y": round(y, 5), "at": at} for at, (x, y) in enumerate(path)]
    if not values:
        return []
    # Two neighbours share their border: dashes over a solid line, or between other dashes, show both colours.
    dashes = alt.Scale(domain=[0, 1, 2], range=[[1, 0], [6, 6], [0, 6, 6, 0]])
    line = marks(
        alt,
        values,
        "line",
        {"strokeWidth": 2, "clip": True},
        x="x:Q",
        y="y:Q",
        order="at:Q",
        detail="path:N",
        color=coloured(alt, "region", colours, symbolType="stroke"),
        strokeDash=alt.StrokeDash("order:O", scale=dashes, legend=None),
    )
    return [line]


def _dots(alt: Any, points: SimplexPoints) -> list[Any]:
    """Bounds (p_a, p_b) as dots coloured by the best mechanism; a thin line leads from the empirical means to them."""
    values = [
        {
            "input": int(points.ids[at]),
            "label": int(points.label[at]) if points.label[at] >= 0 else None,
            "p_a": float(points.bound_0[at]),
            "p_b": float(points.bound_1[at]),
            "mean of E0": float(f"{points.mean_0[at]:.5g}"),
            "mean of E1": float(f"{points.mean_1[at]:.5g}"),
            "left radius": float(f"{points.left[at]:.5g}"),
            "right radius": float(f"{points.right[at]:.5g}"),
            "largest": best,
        }
        for at, best in enumerate(points.best)
    ]
    counts = {name: points.best.count(name) for name in sorted(set(points.best))}
    chosen = alt.selection_point(fields=["largest"], bind="legend")
    kinds = {name: "N" if name == "largest" else "~g" for name in values[0]}
    words = {"labelExpr": f"datum.label + ' is the largest: ' + {counts}[datum.label] + ' inputs'"}
    dots = marks(
        alt,
        values,
        "circle",
        {"size": 45, "stroke": "white", "strokeWidth": 0.5, "clip": True},
        x="p_a:Q",
        y="p_b:Q",
        color=coloured(alt, "largest", {name: COLOURS.get(name, "black") for name in counts}, **words),
        opacity=alt.condition(chosen, alt.value(0.95), alt.value(0.08)),
        tooltip=tooltips(alt, **kinds),
    )
    thin = {"strokeWidth": 0.6, "opacity": 0.5, "color": "black", "clip": True}
    lead = marks(alt, values, "rule", thin, x="mean of E0:Q", x2="p_a:Q", y="mean of E1:Q", y2="p_b:Q")
    return [lead, dots.add_params(chosen)]


def _words(data: SimplexMap, points: SimplexPoints | None) -> list[str]:
    facts = data.summary()
    alone = facts["only_left_certifies"] + facts["only_right_certifies"]
    blank = f"; only one certifies on {alone:.1%}" if alone else ""
    lines = [
        f"{data.left} is larger on {facts['left_wins']:.1%} of the region, {data.right} on "
        f"{facts['right_wins']:.1%}{blank}."
    ]
    if points is not None:
        there = points.summary()
        lines.append(
            f"Dots: bounds (p_a, p_b) of {there['inputs']} inputs; left larger on {there['left_wins']}, right on "
            f"{there['right_wins']}, neither certifies {there['neither_certifies']}."
        )
    return lines


def zero_lines(x: FloatArray, y: FloatArray, z: FloatArray) -> list[list[tuple[float, float]]]:
    """Paths on which values z (len(y), len(x)) cross 0, straight inside each square of the grid; NaN is outside."""
    places: dict[tuple[Any, Any], tuple[float, float]] = {}
    joined: dict[tuple[Any, Any], list[tuple[Any, Any]]] = {}
    above = z > 0
    squares = np.stack([z[:-1, :-1], z[:-1, 1:], z[1:, 1:], z[1:, :-1]])
    known = np.isfinite(squares).sum(0) >= 3  # of a square at the edge of what is known a triangle remains
    for i, j in np.argwhere((squares > 0).any(0) & (squares <= 0).any(0) & known).tolist():
        ring = [at for at in ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j)) if np.isfinite(z[at])]
        crossed = []
        for a, b in zip(ring, ring[1:] + ring[:1], strict=True):
            if above[a] != above[b]:
                share, edge = z[a] / (z[a] - z[b]), (min(a, b), max(a, b))
                along = [float(p[q] + share * (p[r] - p[q])) for p, q, r in ((x, a[1], b[1]), (y, a[0], b[0]))]
                places[edge] = (along[0], along[1])
                crossed.append(edge)
        for one, other in zip(crossed[::2], crossed[1::2], strict=True):
            joined.setdefault(one, []).append(other)
            joined.setdefault(other, []).append(one)
    paths = []
    seen: set[tuple[Any, Any]] = set()
    for start in sorted(joined, key=lambda edge: len(joined[edge])):  # the ends of open paths come first
        if start in seen:
            continue
        path = [start]
        seen.add(start)
        while ahead := [edge for edge in joined[path[-1]] if edge not in seen]:
            seen.add(ahead[0])
            path.append(ahead[0])
        closed = path[:1] if len(path) > 2 and start in joined[path[-1]] else []
        paths.append([places[edge] for edge in path + closed])
    return paths

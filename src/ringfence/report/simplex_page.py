"""The simplex as an interactive page: one HTML file with its scripts inside, which opens without a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringfence.analysis.simplex import SimplexMap, SimplexPoints
from ringfence.analysis.simplex_plots import COLOURS
from ringfence.report import need

_WIDTH, _HEIGHT = 760, 420
_MOST_CELLS = 15_000
"""Cells a browser redraws without a pause; finer maps are thinned for the page."""


def map_page(data: SimplexMap, points: SimplexPoints | None = None) -> str:
    """HTML of a map, with a run's points over it where given; hovering names every radius, the wheel zooms."""
    alt = need("altair")
    need("vl_convert")
    layers = [_cells(alt, data)]
    if points is not None:
        layers.append(_dots(alt, points))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    chart = chart.properties(width=_WIDTH, height=_HEIGHT, title=alt.Title(_title(data), subtitle=_words(data, points)))
    # Vega's menu may save the picture, but not send the data to an editor on the network.
    menu = {"export": True, "source": False, "compiled": False, "editor": False}
    page: str = chart.configure_axis(grid=False).to_html(inline=True, embed_options={"actions": menu})
    return page.replace("<head>", f"<head>\n  <title>{_title(data)}</title>", 1)


def _cells(alt: Any, data: SimplexMap) -> Any:
    stride = max(1, int(np.ceil(np.sqrt(data.inside.sum() / _MOST_CELLS))))
    rows, columns = np.nonzero(data.inside)
    kept = (rows % stride == 0) & (columns % stride == 0)
    rows, columns = rows[kept], columns[kept]
    half = data.step * stride / 2
    names = list(data.members)
    radii = np.stack([data.members[name][rows, columns] for name in names], axis=1)
    value, best = data.value[rows, columns], radii.argmax(1)
    drawn = np.isfinite(value) & ((value > 0) | (data.statistic == "difference"))
    values = [
        {
            "x": round(float(data.e0[column]) - half, 5),
            "x2": round(float(data.e0[column]) + half, 5),
            "y": round(float(data.e1[row]) - half, 5),
            "y2": round(float(data.e1[row]) + half, 5),
            "E0": round(float(data.e0[column]), 5),
            "E1": round(float(data.e1[row]), 5),
            "value": float(f"{one:.4g}") if shown else None,
            "largest": names[winner] if own.max() > 0 else "none",
            **{name: float(f"{radius:.4g}") for name, radius in zip(names, own, strict=True)},
        }
        for row, column, one, shown, winner, own in zip(rows, columns, value, drawn, best, radii, strict=True)
    ]
    finite = value[drawn]
    if data.statistic == "ratio":
        reach = float(np.exp(np.quantile(np.abs(np.log(finite)), 0.95))) if finite.size else 2.0
        reach = max(reach, 1.001)
        scale = alt.Scale(type="log", scheme="purpleorange", domain=[1 / reach, reach], reverse=True, clamp=True)
    else:
        reach = max(float(np.quantile(np.abs(finite), 0.95)), 1e-3) if finite.size else 1.0
        scale = alt.Scale(scheme="purpleorange", domain=[-reach, reach], reverse=True, clamp=True)
    axes = {"E0": "E0, the largest class probability", "E1": "E1, the second largest"}
    return (
        alt.Chart(alt.Data(values=values))
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=axes["E0"], scale=alt.Scale(domain=[0, 1])),
            x2="x2:Q",
            y=alt.Y("y:Q", title=axes["E1"], scale=alt.Scale(domain=[0, 0.5])),
            y2="y2:Q",
            color=alt.Color("value:Q", title=f"{data.left} / {data.right}", scale=scale)
            if data.statistic == "ratio"
            else alt.Color("value:Q", title=f"{data.left} - {data.right}", scale=scale),
            tooltip=[alt.Tooltip(f"{name}:{kind}") for name, kind in _columns(names)],
        )
        .interactive()
    )


def _dots(alt: Any, points: SimplexPoints) -> Any:
    columns = (points.ids, points.label, points.bound_0, points.bound_1, points.mean_0, points.mean_1)
    values = [
        {
            "input": int(one),
            "label": int(label) if label >= 0 else None,
            "p_a": float(p_a),
            "p_b": float(p_b),
            "mean of E0": float(f"{mean_0:.5g}"),
            "mean of E1": float(f"{mean_1:.5g}"),
            "left radius": float(f"{left:.5g}"),
            "right radius": float(f"{right:.5g}"),
            "largest": best,
        }
        for one, label, p_a, p_b, mean_0, mean_1, left, right, best in zip(
            *columns, points.left, points.right, points.best, strict=True
        )
    ]
    found = sorted(set(points.best))
    chosen = alt.selection_point(fields=["largest"], bind="legend")
    scale = alt.Scale(domain=found, range=[COLOURS.get(name, "black") for name in found])
    return (
        alt.Chart(alt.Data(values=values))
        .mark_circle(size=45, stroke="white", strokeWidth=0.5)
        .encode(
            x="p_a:Q",
            y="p_b:Q",
            color=alt.Color("largest:N", title="largest radius", scale=scale),
            opacity=alt.condition(chosen, alt.value(0.9), alt.value(0.08)),
            tooltip=[alt.Tooltip(f"{name}:{'N' if name == 'largest' else 'Q'}") for name in values[0]],
        )
        .add_params(chosen)
    )


def _columns(names: list[str]) -> list[tuple[str, str]]:
    return [("E0", "Q"), ("E1", "Q"), ("value", "Q"), ("largest", "N"), *((name, "Q") for name in names)]


def _title(data: SimplexMap) -> str:
    sign = "/" if data.statistic == "ratio" else "-"
    return f"Certified radius: {data.left} {sign} {data.right} at sigma {data.sigma:g}"


def _words(data: SimplexMap, points: SimplexPoints | None) -> list[str]:
    facts = data.summary()
    lines = [
        f"{data.left} is larger on {facts['left_wins']:.1%} of the region, {data.right} on {facts['right_wins']:.1%}; "
        f"only one certifies on {facts['only_left_certifies'] + facts['only_right_certifies']:.1%} (left blank)."
    ]
    if points is not None:
        there = points.summary()
        lines.append(
            f"Dots: bounds (p_a, p_b) of {there['inputs']} inputs; left larger on {there['left_wins']}, right on "
            f"{there['right_wins']}, neither certifies {there['neither_certifies']}. Click the legend to select."
        )
    return lines

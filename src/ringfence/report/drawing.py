"""How each kind of figure is drawn: colours, marks and axes in Altair, nothing about pages or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringfence.report.figure import Figure, Row

PALETTE = (
    "#3b82c4", "#d9730d", "#2e9e5b", "#d64545", "#8f66cc", "#1f9aae", "#d0589f", "#a1714f", "#8f8f20", "#7a8290",
    "#55aa00", "#446644", "#ff2277", "#cc44cc", "#994455", "#0077ff", "#336600", "#775588", "#994411", "#775500",
)  # fmt: skip
"""Middle tones: readable on white and on black. The second ten are those farthest from all before (CIELAB)."""
_GREENS = ("#1f7a45", "#2e9e5b", "#57b37c", "#86c9a1")
"""Of certified inputs, the larger radius first."""
_UNCERTIFIED = ("#3b82c4", "#8a929c", "#d64545")
"""Of inputs right without a radius, withheld and wrong."""

BELOW = 7
"""Pixels between a horizontal axis and its labels: the first must not lie on the lowest one of the vertical axis."""

Style = Mapping[str, Any]


def marks(alt: Any, rows: Sequence[Row], mark: str, style: Style | None = None, **channels: Any) -> Any:
    """One mark for each row (or a line through them): its looks, and what each channel shows."""
    made = getattr(alt.Chart(alt.Data(values=list(rows))), f"mark_{mark}")(**(style or {}))
    return made.encode(**channels)


def axis(alt: Any, channel: str, field: str, title: str, form: Style | None = None, **scale: Any) -> Any:
    """A numeric axis: what it shows, its words, its ticks and its scale; a share shows percents."""
    apart = {"labelPadding": BELOW} if channel == "X" else {}
    ticks = alt.Axis(**{**apart, **(form or {})})
    return getattr(alt, channel)(f"{field}:Q", title=title, scale=alt.Scale(**scale), axis=ticks)


def share_axis(alt: Any, field: str, title: str) -> Any:
    """A vertical axis from 0% to 100%."""
    return axis(alt, "Y", field, title, {"format": "%"}, domain=[0, 1])


def coloured(alt: Any, field: str, colours: Mapping[str, str], **legend: Any) -> Any:
    """One colour for each name, and the legend that says so."""
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=alt.Legend(labelLimit=420, **legend))


def by_run(alt: Any, figure: Figure, symbol: str = "stroke", size: int = 100) -> dict[str, Any]:
    """One colour per name in the legend on top; clicking a name there makes the others faint."""
    colours = {name: PALETTE[place % len(PALETTE)] for name, place in zip(figure.names, figure.colours, strict=True)}
    # Names may be as long as a path: then one per line; otherwise as many as the place allows, which it knows itself.
    rows = {"columns": 1} if max(map(len, figure.names), default=0) > 24 else {}
    legend = {"orient": "top", "symbolType": symbol, "symbolSize": size, "symbolOpacity": 1, **rows}
    opacity = alt.condition(_chosen(alt), alt.value(1.0), alt.value(0.12))
    return {"color": coloured(alt, "run", colours, **legend), "opacity": opacity}


def _chosen(alt: Any) -> Any:
    """The names that were clicked in the legend; all of them before."""
    return alt.selection_point(fields=["run"], bind="legend", name="chosen")


def tooltips(alt: Any, **formats: str) -> list[Any]:
    """Tooltips by field; N marks a name, anything else is a number's format."""
    return [
        alt.Tooltip(f"{field}:N") if kind == "N" else alt.Tooltip(f"{field}:Q", format=kind)
        for field, kind in formats.items()
    ]


def _curve(alt: Any, figure: Figure) -> Any:
    """Steps with bands, dots where radii were tried, a dashed rule where draws could prove no more."""
    lines = [row for row in figure.rows if row.get("tried") is False]
    dots = [row for row in figure.rows if row.get("tried")]
    rules = [row for row in figure.rows if "ceiling" in row]
    reach = {} if lines else {"domainMax": 1.05 * max(row["radius"] for row in dots)}  # no dot on the edge
    x = axis(alt, "X", "radius", figure.radius, nice=False, zero=True, **reach)
    look: dict[str, Any] = by_run(alt, figure)
    ends: dict[str, Any] = {"y": "low:Q", "y2": "high:Q"}
    shown = {"x": x, "y": share_axis(alt, "accuracy", "certified accuracy"), **look}
    shown["tooltip"] = tooltips(alt, run="N", radius=".3f", accuracy=".1%", low=".1%", high=".1%")
    layers = []
    if lines:
        faint = alt.value(min(0.16, 0.4 / len(figure.names)))  # as many as may lie on each other stay see-through
        band = {**look, "opacity": alt.condition(_chosen(alt), faint, alt.value(0.01))}
        layers.append(marks(alt, lines, "area", {"interpolate": "step-before", "aria": False}, x=x, **ends, **band))
        line = marks(alt, lines, "line", {"interpolate": "step-before", "strokeWidth": 2}, **shown)
        layers.append(line.add_params(_chosen(alt)))
    if dots:
        layers.append(marks(alt, dots, "rule", x="radius:Q", **ends, **look))
        dot = marks(alt, dots, "point", {"filled": True, "size": 70}, **shown)
        layers.append(dot if lines else dot.add_params(_chosen(alt)))
    if rules:
        told, dashed = tooltips(alt, ceiling=".4f", of="N"), {"strokeDash": [5, 4], "strokeWidth": 1.5}
        layers.append(marks(alt, rules, "rule", dashed, x="ceiling:Q", tooltip=told, **look))
    return alt.layer(*layers)


def _outcomes(alt: Any, figure: Figure) -> Any:
    """One bar of 100% for each run, in its parts; greens are certified, the deeper the farther."""
    order = {row["outcome"]: row["order"] for row in figure.rows}
    certified = sorted((name for name in order if order[name] < 0), key=order.__getitem__)
    others = sorted((name for name in order if order[name] >= 0), key=order.__getitem__)
    colours = {name: _GREENS[min(place, len(_GREENS) - 1)] for place, name in enumerate(certified)}
    colours |= {name: _UNCERTIFIED[int(order[name])] for name in others}
    return marks(
        alt,
        figure.rows,
        "bar",
        {"height": {"band": 0.7}},
        x=axis(alt, "X", "share", "share of the test inputs", {"format": "%"}, domain=[0, 1]),
        y=alt.Y("run:N", title=None, sort=figure.names, axis=alt.Axis(labelLimit=140)),
        color=coloured(alt, "outcome", colours, orient="top", symbolType="square"),
        order=alt.Order("order:Q"),
        tooltip=tooltips(alt, run="N", outcome="N", inputs=",d", share=".1%"),
    )


def _steps(title: str, share: bool = False, **scale: Any) -> Callable[[Any, Figure], Any]:
    """How a distribution function is drawn; one of shares from one half or less up to 1."""

    def draw(alt: Any, figure: Figure) -> Any:
        ends: dict[str, Any] = {"domain": [min(0.5, *(row["x"] for row in figure.rows)), 1.0]} if share else {}
        channels = {"x": axis(alt, "X", "x", title, nice=False, **ends, **scale), **by_run(alt, figure)}
        channels |= {"y": share_axis(alt, "share", "share of inputs")}
        channels |= {"tooltip": tooltips(alt, run="N", x=".6~g", share=".1%")}
        line = marks(alt, figure.rows, "line", {"interpolate": "step-after", "strokeWidth": 2}, **channels)
        return line.add_params(_chosen(alt))

    return draw


def _stages(alt: Any, figure: Figure) -> Any:
    order = sorted({row["draws"] for row in figure.rows})
    title, ticks = "draws up to the look, or of the stage", alt.Axis(labelOverlap=True, labelAngle=0)
    bars = marks(
        alt,
        figure.rows,
        "bar",
        x=alt.X("draws:O", title=title, sort=order, axis=ticks),
        y=axis(alt, "Y", "percent", "percent of inputs"),
        color=coloured(alt, "outcome", {"certified": PALETTE[2], "gave up": PALETTE[1]}, orient="top"),
        tooltip=tooltips(alt, run="N", look="d", draws=",d", outcome="N", percent=".2f"),
    )
    if len(figure.names) == 1:
        return bars
    picker = alt.binding_select(options=figure.names, name="run ")
    choice = alt.param(name="shown", value=figure.names[0], bind=picker)
    return bars.add_params(choice).transform_filter("datum.run == shown")


def _mechanisms(alt: Any, figure: Figure) -> Any:
    return marks(
        alt,
        figure.rows,
        "bar",
        x=alt.X("mechanism:N", title=None, sort=None, axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("run:N", sort=figure.names),
        y=axis(alt, "Y", "mean", "mean radius"),
        tooltip=tooltips(alt, run="N", mechanism="N", mean=".4f", median=".4f"),
        **by_run(alt, figure, "circle"),
    ).add_params(_chosen(alt))


def _simplex(alt: Any, figure: Figure) -> Any:
    return marks(
        alt,
        figure.rows,
        "point",
        {"filled": True, "size": 28},
        x=axis(alt, "X", "p_a", "p_a, lower bound on the class", domain=[0, 1]),
        y=axis(alt, "Y", "p_b", "p_b, upper bound on every other"),
        tooltip=tooltips(alt, run="N", input="d", p_a=".5f", p_b=".5f", radius=".4f"),
        **by_run(alt, figure, "circle"),
    ).add_params(_chosen(alt))


def _frontier(alt: Any, figure: Figure) -> Any:
    """The page sets the parameter theta from its slider; the nearest threshold of each run is enlarged."""
    known = any(row["acr"] is not None for row in figure.rows)
    field, title = ("acr", "average certified radius (ACR)") if known else ("abstention", "abstention")
    channels = {
        "x": axis(alt, "X", "accuracy", "accuracy at radius 0", {"format": "%"}, zero=False),
        "y": axis(alt, "Y", field, title, zero=False),
        "color": by_run(alt, figure, "circle")["color"],
        "tooltip": tooltips(alt, run="N", theta=".3~f", accuracy=".1%", acr=".4f", abstention=".1%"),
    }
    theta = alt.param(name="theta", value=figure.rows[len(figure.rows) // 2]["theta"])
    near = alt.condition("abs(datum.theta - theta) < 1e-9", alt.value(220), alt.value(28))
    path = marks(alt, figure.rows, "line", {"strokeWidth": 1, "opacity": 0.6}, order="theta:Q", **channels)
    dots = marks(alt, figure.rows, "point", {"filled": True, "opacity": 0.9}, size=near, **channels)
    return alt.layer(path, dots).add_params(theta)


def _attacks(alt: Any, figure: Figure) -> Any:
    """One colour per attack; what is proved is solid, what the attack left standing dashed."""
    kinds = alt.Scale(domain=["certified", "empirical"], range=[[1, 0], [6, 4]])
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=400)
    channels = {
        "x": axis(alt, "X", "radius", figure.radius, zero=True),
        "y": share_axis(alt, "accuracy", "accuracy"),
        "detail": "kind:N",
        "tooltip": tooltips(alt, run="N", kind="N", radius=".3~f", accuracy=".1%"),
        **by_run(alt, figure, size=400),  # as long as a dashed line needs to be told from a solid one
    }
    dash = alt.StrokeDash("kind:N", scale=kinds, legend=legend)
    line = marks(alt, figure.rows, "line", {"strokeWidth": 2}, strokeDash=dash, **channels)
    return alt.layer(
        line.add_params(_chosen(alt)), marks(alt, figure.rows, "point", {"filled": True, "size": 45}, **channels)
    )


def _lines(alt: Any, figure: Figure) -> Any:
    """Plain lines of (x, y) with dots, for what comes from elsewhere (training, variance)."""
    words = figure.rows[0]
    return marks(
        alt,
        figure.rows,
        "line",
        {"point": len(figure.rows) < 120, "strokeWidth": 2},
        x=axis(alt, "X", "x", words["x_title"], {"tickMinStep": 1, "format": "d"}),
        y=axis(alt, "Y", "y", words["y_title"], zero=False),
        tooltip=tooltips(alt, run="N", x="~g", y=".5~g"),
        **by_run(alt, figure),
    ).add_params(_chosen(alt))


DRAW: Mapping[str, Callable[[Any, Figure], Any]] = {
    "curve": _curve,
    "outcomes": _outcomes,
    "ecdf": _steps("p_A, share of draws for the chosen class", share=True),
    "draws": _steps("draws", type="log"),
    "stages": _stages,
    "mechanisms": _mechanisms,
    "simplex": _simplex,
    "frontier": _frontier,
    "attacks": _attacks,
    "lines": _lines,
}

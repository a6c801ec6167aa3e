"""How each kind of figure is drawn: colours, marks and axes in Altair, nothing about pages or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ringfence.report.figure import Figure, Row

PALETTE = (
    "#3b82c4", "#d9730d", "#2e9e5b", "#d64545", "#8f66cc", "#1f9aae", "#d0589f", "#a1714f", "#8f8f20", "#7a8290",
)  # fmt: skip
"""Middle tones: readable on white and on black."""


def by_run(alt: Any, figure: Figure, symbol: str = "stroke", size: int = 100) -> Any:
    """One colour per name, and the legend that says so."""
    colours = [PALETTE[place % len(PALETTE)] for place in figure.colours]
    scale = alt.Scale(domain=figure.names, range=colours)
    # Names may be as long as a path: then one per line; otherwise as many as the place allows, which it knows itself.
    rows = {"columns": 1} if max(map(len, figure.names), default=0) > 24 else {}
    legend = alt.Legend(
        orient="top", labelLimit=420, title=None, symbolType=symbol, symbolSize=size, symbolOpacity=1, **rows
    )
    return alt.Color("run:N", scale=scale, legend=legend)


def of_rows(alt: Any, rows: list[Row]) -> Any:
    """A chart of these rows, without marks yet."""
    return alt.Chart(alt.Data(values=rows))


def legend_choice(alt: Any, field: str = "run") -> tuple[Any, Any]:
    """A selection by clicking the legend, and the opacity that follows it."""
    selection = alt.selection_point(fields=[field], bind="legend", name="chosen")
    return selection, alt.condition(selection, alt.value(1.0), alt.value(0.12))


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
    selection, opacity = legend_choice(alt)
    reach = {} if lines else {"domainMax": 1.05 * max(row["radius"] for row in dots)}  # no dot on the edge
    x = alt.X("radius:Q", title="l2 radius", scale=alt.Scale(nice=False, zero=True, **reach))
    y = alt.Y("accuracy:Q", title="certified accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    faint = 0.16 if len(figure.names) <= 4 else 0.07
    colour, tips = by_run(alt, figure), tooltips(alt, run="N", radius=".3f", accuracy=".1%", low=".1%", high=".1%")
    band = (
        of_rows(alt, lines)
        .mark_area(interpolate="step-before", aria=False)
        .encode(
            x=x,
            y="low:Q",
            y2="high:Q",
            color=colour,
            opacity=alt.condition(selection, alt.value(faint), alt.value(0.01)),
        )
    )
    line = (
        of_rows(alt, lines)
        .mark_line(interpolate="step-before", strokeWidth=2)
        .encode(x=x, y=y, color=colour, opacity=opacity, tooltip=tips)
        .add_params(selection)
    )
    error = of_rows(alt, dots).mark_rule().encode(x="radius:Q", y="low:Q", y2="high:Q", color=colour, opacity=opacity)
    dot = (
        of_rows(alt, dots)
        .mark_point(filled=True, size=70)
        .encode(x=x, y=y, color=colour, opacity=opacity, tooltip=tips)
    )
    rule = (
        of_rows(alt, rules)
        .mark_rule(strokeDash=[5, 4], strokeWidth=1.5)
        .encode(x="ceiling:Q", color=colour, opacity=opacity, tooltip=tooltips(alt, ceiling=".4f", of="N"))
    )
    layers = [band, line] if lines else []
    layers += [error, dot if lines else dot.add_params(selection)] if dots else []
    return alt.layer(*layers, *([rule] if rules else []))


def _steps(x_title: str, share: bool = False, **scale: Any) -> Callable[[Any, Figure], Any]:
    """How a distribution function is drawn; one of shares from one half or less up to 1."""

    def draw(alt: Any, figure: Figure) -> Any:
        selection, opacity = legend_choice(alt)
        ends = {"domain": [min(0.5, *(row["x"] for row in figure.rows)), 1.0]} if share else {}
        return (
            of_rows(alt, figure.rows)
            .mark_line(interpolate="step-after", strokeWidth=2)
            .encode(
                x=alt.X("x:Q", title=x_title, scale=alt.Scale(nice=False, **ends, **scale)),
                y=alt.Y("share:Q", title="share of inputs", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
                color=by_run(alt, figure),
                opacity=opacity,
                tooltip=tooltips(alt, run="N", x=".6~g", share=".1%"),
            )
            .add_params(selection)
        )

    return draw


def _stages(alt: Any, figure: Figure) -> Any:
    outcome = alt.Color(
        "outcome:N",
        scale=alt.Scale(domain=["certified", "gave up"], range=[PALETTE[2], PALETTE[1]]),
        legend=alt.Legend(orient="top", title=None),
    )
    order = list(dict.fromkeys(row["draws"] for row in sorted(figure.rows, key=lambda row: row["draws"])))
    bars = (
        of_rows(alt, figure.rows)
        .mark_bar()
        .encode(
            x=alt.X(
                "draws:O", title="draws up to the look, or of the stage", sort=order, axis=alt.Axis(labelOverlap=True)
            ),
            y=alt.Y("percent:Q", title="percent of inputs"),
            color=outcome,
            tooltip=tooltips(alt, run="N", look="d", draws=",d", outcome="N", percent=".2f"),
        )
    )
    if len(figure.names) == 1:
        return bars
    picker = alt.binding_select(options=figure.names, name="run ")
    choice = alt.param(name="shown", value=figure.names[0], bind=picker)
    return bars.add_params(choice).transform_filter("datum.run == shown")


def _mechanisms(alt: Any, figure: Figure) -> Any:
    selection, opacity = legend_choice(alt)
    return (
        of_rows(alt, figure.rows)
        .mark_bar()
        .encode(
            x=alt.X("mechanism:N", title=None, sort=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("run:N", sort=figure.names),
            y=alt.Y("mean:Q", title="mean radius"),
            color=by_run(alt, figure, "circle"),
            opacity=opacity,
            tooltip=tooltips(alt, run="N", mechanism="N", mean=".4f", median=".4f"),
        )
        .add_params(selection)
    )


def _simplex(alt: Any, figure: Figure) -> Any:
    selection, opacity = legend_choice(alt)
    return (
        of_rows(alt, figure.rows)
        .mark_point(filled=True, size=28)
        .encode(
            x=alt.X("p_a:Q", title="p_a, lower bound on the class", scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("p_b:Q", title="p_b, upper bound on every other"),
            color=by_run(alt, figure, "circle"),
            opacity=opacity,
            tooltip=tooltips(alt, run="N", input="d", p_a=".5f", p_b=".5f", radius=".4f"),
        )
        .add_params(selection)
    )


def _frontier(alt: Any, figure: Figure) -> Any:
    """The page sets the parameter theta from its slider; the nearest threshold of each run is enlarged."""
    known = [row for row in figure.rows if row["acr"] is not None]
    y = ("acr:Q", "average certified radius (ACR)") if known else ("abstention:Q", "abstention")
    base = of_rows(alt, figure.rows).encode(
        x=alt.X("accuracy:Q", title="accuracy at radius 0", scale=alt.Scale(zero=False), axis=alt.Axis(format="%")),
        y=alt.Y(y[0], title=y[1], scale=alt.Scale(zero=False)),
        color=by_run(alt, figure, "circle"),
        tooltip=tooltips(alt, run="N", theta=".3~f", accuracy=".1%", acr=".4f", abstention=".1%"),
    )
    theta = alt.param(name="theta", value=figure.rows[len(figure.rows) // 2]["theta"])
    near = alt.condition("abs(datum.theta - theta) < 1e-9", alt.value(220), alt.value(28))
    path = base.mark_line(strokeWidth=1, opacity=0.6).encode(order="theta:Q")
    return alt.layer(path, base.mark_point(filled=True, opacity=0.9).encode(size=near)).add_params(theta)


def _attacks(alt: Any, figure: Figure) -> Any:
    """One colour per attack; what is proved is solid, what the attack left standing dashed."""
    selection, opacity = legend_choice(alt)
    kinds = alt.Scale(domain=["certified", "empirical"], range=[[1, 0], [6, 4]])
    legend = alt.Legend(orient="top", title=None, symbolType="stroke", symbolSize=400)
    base = of_rows(alt, figure.rows).encode(
        x=alt.X("radius:Q", title="l2 radius", scale=alt.Scale(zero=True)),
        y=alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")),
        color=by_run(alt, figure, size=400),  # as long as a dashed line needs to be told from a solid one
        detail="kind:N",
        opacity=opacity,
        tooltip=tooltips(alt, run="N", kind="N", radius=".3~f", accuracy=".1%"),
    )
    line = base.mark_line(strokeWidth=2).encode(strokeDash=alt.StrokeDash("kind:N", scale=kinds, legend=legend))
    return alt.layer(line.add_params(selection), base.mark_point(filled=True, size=45))


def _lines(alt: Any, figure: Figure) -> Any:
    """Plain lines of (x, y) with dots, for what comes from elsewhere (training, variance)."""
    words = figure.rows[0]
    selection, opacity = legend_choice(alt)
    return (
        of_rows(alt, figure.rows)
        .mark_line(point=len(figure.rows) < 120, strokeWidth=2)
        .encode(
            x=alt.X("x:Q", title=words["x_title"], axis=alt.Axis(tickMinStep=1, format="d")),
            y=alt.Y("y:Q", title=words["y_title"], scale=alt.Scale(zero=False)),
            color=by_run(alt, figure),
            opacity=opacity,
            tooltip=tooltips(alt, run="N", x="~g", y=".5~g"),
        )
        .add_params(selection)
    )


DRAW: Mapping[str, Callable[[Any, Figure], Any]] = {
    "curve": _curve,
    "ecdf": _steps("p_A, share of draws for the chosen class", share=True),
    "draws": _steps("draws", type="log"),
    "stages": _stages,
    "mechanisms": _mechanisms,
    "simplex": _simplex,
    "frontier": _frontier,
    "attacks": _attacks,
    "lines": _lines,
}

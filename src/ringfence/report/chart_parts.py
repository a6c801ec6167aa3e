"""What charts of every kind are made of: colours, rows, a choice by the legend, tooltips."""

from __future__ import annotations

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

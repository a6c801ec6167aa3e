"""Tables for people, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from ringfence.analysis.metrics import RunMetrics


def percent(share: float | None) -> str:
    """A share as percent with one digit; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f}"


def number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def metrics_table(runs: Sequence[RunMetrics]) -> Table:
    """One line per run or lane: certified accuracy in percent per radius, then the summary figures."""
    radii = sorted({radius for run in runs for radius in run.certified_accuracy})
    paths = {run.path for run in runs}
    lanes = len(paths) == 1 and any(run.lane for run in runs)
    title = "Certified accuracy (%) at radius" + (f", {escape(paths.pop())}" if lanes else "")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("lane" if lanes else "run", overflow="fold", min_width=12)
    for heading in (*(f"{radius:g}" for radius in radii), "ACR", "abst%", "draws", "ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        name = run.lane or "" if lanes else run.path + (f" [{run.lane}]" if run.lane else "")
        table.add_row(
            escape(name) + ("" if run.sound else " [yellow](paper: no guarantee)[/]"),
            *(percent(run.certified_accuracy.get(radius)) for radius in radii),
            number(run.acr),
            percent(run.abstention),
            f"{run.draws / run.count:.0f}",
            f"{1000 * run.seconds / run.count:.1f}",
        )
    counts = sorted({run.count for run in runs})
    table.caption = f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))} inputs; draws and ms per input"
    table.caption_justify = "left"
    return table

"""Tables for people, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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


SAVED: dict[str, Callable[[RunMetrics], float | None]] = {
    "KCR%": lambda run: 100 * run.consensus.kcr if run.consensus else None,
    "fwd": lambda run: run.consensus.forwards_per_draw if run.consensus else None,
    "TimeRF": lambda run: run.time_rf,
}
"""What K-consensus and a faster procedure save: columns shown only where some run has them; fwd is per draw."""


def sparkline(shares: Sequence[float | None]) -> str:
    """Shares as blocks of eight heights, a blank where there is none."""
    return "".join(" " if share is None else "▁▂▃▄▅▆▇█"[min(7, int(8 * share))] for share in shares)


def metrics_table(runs: Sequence[RunMetrics], curve: bool = False) -> Table:
    """One line per run or lane: certified accuracy in percent per radius (and as a curve), then the summary figures."""
    radii = sorted({radius for run in runs for radius in run.certified_accuracy})
    paths = {run.path for run in runs}
    lanes = len(paths) == 1 and any(run.lane for run in runs)
    title = "Certified accuracy (%) at radius" + (f", {escape(paths.pop())}" if lanes else "")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("lane" if lanes else "run", overflow="fold", min_width=12)
    saved = [heading for heading, of in SAVED.items() if any(of(run) is not None for run in runs)]
    shape = ["curve"] if curve and len(radii) > 2 else []
    for heading in (*(f"{radius:g}" for radius in radii), *shape, "ACR", "abst%", "draws", "ms", *saved):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        name = run.lane or "" if lanes else run.path + (f" [{run.lane}]" if run.lane else "")
        table.add_row(
            escape(name) + ("" if run.sound else " [yellow](paper: no guarantee)[/]"),
            *(percent(run.certified_accuracy.get(radius)) for radius in radii),
            *(f"[cyan]{sparkline([run.certified_accuracy.get(radius) for radius in radii])}[/]" for _ in shape),
            number(run.acr),
            percent(run.abstention),
            f"{run.draws / run.count:.0f}",
            f"{1000 * run.seconds / run.count:.1f}",
            *("-" if (value := SAVED[heading](run)) is None else f"{value:.2f}" for heading in saved),
        )
    counts = sorted({run.count for run in runs})
    table.caption = f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))} inputs; draws and ms per input"
    table.caption += "; KCR% of draws decided by the first K members, fwd forwards per draw" if "fwd" in saved else ""
    table.caption_justify = "left"
    return table

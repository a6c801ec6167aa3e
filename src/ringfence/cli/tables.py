"""Tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ringfence.analysis.metrics import RunMetrics


def percent(share: float | None) -> str:
    """A share as percent, rounded to one digit; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f}%"


def number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def metrics_table(runs: Sequence[RunMetrics]) -> Table:
    """One line per run and lane: certified accuracy per radius, then the summary figures."""
    radii = sorted({radius for run in runs for radius in run.certified_accuracy})
    table = Table(title="Certified accuracy at radius r", title_justify="left")
    table.add_column("run", overflow="fold")
    for radius in radii:
        table.add_column(f"r={radius:g}", justify="right")
    for name in ("ACR", "abstain", "inputs", "draws/input", "ms/input"):
        table.add_column(name, justify="right")
    for run in runs:
        name = run.path + (f" [{run.lane}]" if run.lane else "") + ("" if run.sound else " (paper: no guarantee)")
        shares = [percent(run.certified_accuracy.get(radius)) for radius in radii]
        cost = [f"{run.draws / run.count:,.0f}", f"{1000 * run.seconds / run.count:.1f}"]
        table.add_row(
            name.replace("[", r"\["), *shares, number(run.acr), percent(run.abstention), str(run.count), *cost
        )
    return table

"""Tables for people, readable on 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ringfence.analysis.metrics import RunMetrics
from ringfence.printable import one_line


def percent(share: float | None) -> str:
    """A share as percent with one digit; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f}"


def number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, with a digit behind the point below 100."""
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


UNSOUND = "(paper: no guarantee)"
"""The label of a run or lane with results in a `paper` form: it must not be folded away."""

SAVED: dict[str, Callable[[RunMetrics], float | None]] = {
    "KCR%": lambda run: 100 * run.consensus.kcr if run.consensus else None,
    "fwd": lambda run: run.consensus.forwards_per_draw if run.consensus else None,
    "TimeRF": lambda run: run.time_rf,
}
"""What K-consensus and a faster procedure save: columns shown only where some run has them; fwd is per draw."""


def sparkline(shares: Sequence[float | None]) -> str:
    """Shares as blocks of eight heights, a blank where there is none."""
    return "".join(" " if share is None else "▁▂▃▄▅▆▇█"[min(7, int(8 * share))] for share in shares)


def metrics_table(runs: Sequence[RunMetrics], width: int = 80, curve: bool = False) -> Table:
    """One line per run or lane: certified accuracy in percent per radius, then the summary figures.

    width: columns of the terminal. curve: also as a sparkline, where that fits beside all numbers. The label of
    unsound runs goes below the table where it would push out a number.
    """
    for shape, below in ((curve, False), (False, False), (False, True)):
        table, needed = _metrics_table(runs, shape, below)
        if needed <= width:
            break
    return table


def _metrics_table(runs: Sequence[RunMetrics], curve: bool, below: bool) -> tuple[Table, int]:
    """The table, and the columns of a terminal that it needs at least."""
    radii = sorted({radius for run in runs for radius in run.certified_accuracy})
    saved = {heading: of for heading, of in SAVED.items() if any(of(run) is not None for run in runs)}
    columns: dict[str, Callable[[RunMetrics], str]] = {
        **{f"{radius:g}": _certified_at(radius) for radius in radii},
        "curve": lambda run: sparkline([run.certified_accuracy.get(radius) for radius in radii]),
        "ACR": lambda run: number(run.acr),
        "abst%": lambda run: percent(run.abstention),
        "draws": lambda run: f"{run.draws / run.count:.0f}",
        "ms": lambda run: milliseconds(run.seconds / run.count),
        **{heading: _two_digits(of) for heading, of in saved.items()},
    }
    if not curve or len(radii) < 3:
        del columns["curve"]
    paths = {run.path for run in runs}
    lanes = len(paths) == 1 and any(run.lane for run in runs)
    norms = sorted({f" in {run.norm} (proved in {run.proved})" for run in runs if run.norm != run.proved})
    title = "Certified accuracy (%) at radius" + " or".join(norms) + (f", {one_line(paths.pop())}" if lanes else "")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    unsound = not all(run.sound for run in runs)
    label = " *" if below else f"\n{UNSOUND}"
    least = len(UNSOUND) if unsound and not below else 12
    table.add_column("lane" if lanes else "run", overflow="fold", min_width=least)
    for heading in columns:
        if heading == "curve":
            table.add_column(heading, style="cyan", no_wrap=True)
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        name = run.lane or "" if lanes else run.path + (f" [{run.lane}]" if run.lane else "")
        named = Text(one_line(name)) if run.sound else Text.assemble(one_line(name), (label, "yellow"))
        table.add_row(named, *(of(run) for of in columns.values()))
    counts = sorted({run.count for run in runs})
    table.caption = f"* {UNSOUND}; " if unsound and below else ""
    table.caption += f"{' to '.join(map(str, counts[:1] + counts[1:][-1:]))} inputs; draws and ms per input"
    table.caption += "; KCR% of draws decided by the first K members, fwd forwards per draw" if "fwd" in saved else ""
    table.caption_justify = "left"
    widths = (max(len(heading), *(len(of(run)) for run in runs)) for heading, of in columns.items())
    return table, least + sum(1 + width for width in widths)


def _certified_at(radius: float) -> Callable[[RunMetrics], str]:
    return lambda run: percent(run.certified_accuracy.get(radius))


def _two_digits(of: Callable[[RunMetrics], float | None]) -> Callable[[RunMetrics], str]:
    return lambda run: "-" if (value := of(run)) is None else f"{value:.2f}"


def stages_table(runs: Sequence[RunMetrics]) -> Table:
    """Where staged runs stopped: percent of inputs abstained from (ASA) and certified (ASC) at each stage or look."""
    title = "Stopped at (ASA abstained, ASC certified, % of inputs)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("run", overflow="fold")
    for heading in ("stage", "draws", "ASA", "ASC", "SampleRF", "published SampleRF"):
        table.add_column(heading, justify="right")
    for run in runs:
        if run.stages is None:
            continue
        name = one_line(run.path + (f" [{run.lane}]" if run.lane else ""))
        for share in run.stages.shares:
            if share.asr == 0 and share.index < len(run.stages.shares):
                continue
            saved = (f"{run.stages.sample_rf:.2f}", f"{run.stages.sample_rf_paper:.2f}") if name else ("", "")
            cells = (str(share.index), f"{share.draws:,}", f"{share.asa:.1f}", f"{share.asc:.1f}", *saved)
            table.add_row(name, *cells)
            name = ""
    table.caption = "SampleRF: fixed draws over all draws made; published: over those of the last stage reached"
    table.caption_justify = "left"
    return table

"""Bars: how far a certification is, with the time left, where a program or a notebook waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.driver import Progress

MOMENT = 1.0
"""Seconds that nobody wonders about."""


def in_words(seconds: float) -> str:
    """Seconds, minutes or hours, as a person says it."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def pace(progress: Progress, total: int, done: int = 0, draws: int | None = None) -> tuple[str, float | None]:
    """What is told of it, and the seconds left if they are known; done: before this session; draws: of each input.

    Where draws stop early, nobody knows how long an input takes before the first is decided.
    """
    there, seconds = done + progress.inputs, max(progress.seconds, 1e-9)
    wanted, given = (total - done, progress.inputs) if draws is None else ((total - done) * draws, progress.draws)
    left = max(wanted - given, 0) * progress.seconds / given if given else None
    return f"{there}/{total} inputs, {progress.draws / seconds:,.0f} draws/s", left


@contextmanager
def bar(
    doing: str, total: int, done: int = 0, draws: int | None = None, shown: bool = True
) -> Iterator[Callable[[Progress], None]]:
    """A callback for certify, whose bar appears after a moment on terminals and in notebooks with ipywidgets, also if
    nothing is told until then: a large network is checked for long before its first batch."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    notebook = console.is_jupyter and find_spec("ipywidgets") is not None  # without which rich only warns
    if not (shown and (console.is_terminal or notebook)):
        yield lambda progress: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[told]}"))
    bars = Bars(*columns, console=console, transient=True)
    task = bars.add_task(doing, total=total, completed=done, told="trying the network first")
    waiting = Timer(MOMENT, bars.start)
    waiting.daemon = True

    def report(progress: Progress) -> None:
        if progress.seconds < MOMENT:
            return
        bars.start()  # which may be said again and again
        told, left = pace(progress, total, done, draws)
        bars.update(
            task, completed=done + progress.inputs, told=told + ("" if left is None else f", {in_words(left)} left")
        )

    waiting.start()
    try:
        yield report
    finally:
        waiting.cancel()
        waiting.join()
        bars.stop()

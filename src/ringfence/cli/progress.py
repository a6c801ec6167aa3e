"""How far a command is, with the time left: bars on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ringfence.cli.console import is_terminal, remark, remarks

if TYPE_CHECKING:
    from ringfence.driver import Progress

LINE_SECONDS = 10.0


class Meter(Protocol):
    """Shows how far the work of this name is; every name has its own bar, or its own lines."""

    def __call__(
        self, name: str, done: float, total: float, told: str, left: float | None = None, now: bool = False
    ) -> None:
        """Done of total; told: more about it; left: seconds, None if unknown; now: a line even if one is recent."""


@contextmanager
def meter(quiet: bool) -> Iterator[Meter]:
    """What shows progress here."""
    if quiet:
        yield lambda *told, **more: None
    elif is_terminal():
        yield from _bars()
    else:
        yield _Lines()


def _bars() -> Iterator[Meter]:
    from rich.progress import BarColumn, Progress, TaskID, TextColumn
    from rich.table import Column

    # In a narrow window the words are cut, never the name, the bar and the time left.
    words = TextColumn("{task.fields[told]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (TextColumn("{task.description}"), BarColumn(20), words, TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=remarks, transient=True, expand=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(name: str, done: float, total: float, told: str, left: float | None = None, now: bool = False) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total, told="", left="")
            bars.update(tasks[name], completed=done, told=told, left="" if left is None else f"{in_words(left)} left")

        yield show


class _Lines:
    """One line for each name every few seconds, for logs."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._last: dict[str, float] = {}

    def __call__(
        self, name: str, done: float, total: float, told: str, left: float | None = None, now: bool = False
    ) -> None:
        """A line, unless the last one is recent."""
        if not now and time.monotonic() - self._last.get(name, self._begin) < LINE_SECONDS:
            return
        self._last[name] = time.monotonic()
        remark(f"{name}: {told}" + ("" if left is None else f", about {in_words(left)} left"))


@contextmanager
def show_progress(
    total: int, done: int, quiet: bool, doing: str = "certifying", draws: int | None = None
) -> Iterator[Callable[[Progress], None]]:
    """A callback for certify; total inputs, done of them already before this session; draws of each, where known."""
    with meter(quiet) as show:

        def report(progress: Progress) -> None:
            there, seconds = done + progress.inputs, max(progress.seconds, 1e-9)
            # Where draws stop early, nobody knows how long an input takes before the first is decided.
            wanted, given = (
                (total - done, progress.inputs) if draws is None else ((total - done) * draws, progress.draws)
            )
            left = max(wanted - given, 0) * progress.seconds / given if given else None
            show(doing, there, total, f"{there}/{total} inputs, {progress.draws / seconds:,.0f} draws/s", left)

        yield report


def in_words(seconds: float) -> str:
    """Seconds, minutes or hours, as a person says it."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"

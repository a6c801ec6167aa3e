"""Progress with rate and time left: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from ringfence.cli.console import is_terminal, remark, remarks

if TYPE_CHECKING:
    from ringfence.driver import Progress

LINE_SECONDS = 10.0
Shown = TypeVar("Shown")


def shown(
    quiet: bool, silent: Shown, bar: Callable[[], Iterator[Shown]], lines: Callable[[], Shown]
) -> Iterator[Shown]:
    """What shows progress: nothing when quiet, a bar on a terminal, plain lines elsewhere."""
    if quiet:
        yield silent
    elif is_terminal():
        yield from bar()
    else:
        yield lines()


class Report(Protocol):
    """Takes how far a run is."""

    def __call__(self, progress: Progress, /) -> None:
        """Show it."""


@contextmanager
def show_progress(total: int, done: int, quiet: bool, doing: str = "certifying") -> Iterator[Report]:
    """A callback for certify; total inputs, done of them already before this session."""
    settings = (total, done, doing)
    yield from shown(quiet, lambda progress: None, lambda: _bar(*settings), lambda: _Lines(*settings))


def _bar(total: int, done: int, doing: str) -> Iterator[Report]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=remarks, transient=True) as bar:
        task = bar.add_task(doing, total=total, completed=done, rate="")
        yield lambda progress: bar.update(task, completed=done + progress.inputs, rate=_rate(progress))


class _Lines:
    """One line every few seconds, for logs."""

    def __init__(self, total: int, done: int, doing: str) -> None:
        self._total, self._done, self._doing, self._last = total, done, doing, time.monotonic()

    def __call__(self, progress: Progress, /) -> None:
        """A line, unless the last one is recent."""
        if time.monotonic() - self._last < LINE_SECONDS:
            return
        self._last = time.monotonic()
        done = self._done + progress.inputs
        told = f"{self._doing}: {done}/{self._total} inputs, {_rate(progress)}"
        if progress.inputs:  # before the first is decided nobody knows how long one takes
            told += f", about {(self._total - done) * progress.seconds / progress.inputs:.0f} s left"
        remark(told)


def _rate(progress: Progress) -> str:
    return f"{progress.draws / max(progress.seconds, 1e-9):,.0f} draws/s"

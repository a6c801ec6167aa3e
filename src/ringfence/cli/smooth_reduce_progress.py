"""How far a study is: network forwards over all of its runs, their rate, and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ringfence.cli.console import remark, remarks
from ringfence.cli.progress import LINE_SECONDS, shown


class Meter(Protocol):
    """Takes the name of the run in work and the forwards of this session."""

    def __call__(self, name: str, forwards: float, /) -> None:
        """Show it."""


@contextmanager
def show_forwards(total: float, quiet: bool) -> Iterator[Meter]:
    """A bar on a terminal, a line every few seconds elsewhere, nothing when quiet; total forwards are still to do."""
    yield from shown(quiet or total <= 0, lambda name, forwards: None, lambda: _bar(total), lambda: _Lines(total))


def _bar(total: float) -> Iterator[Meter]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = (TextColumn("{task.fields[run]}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rate]}"))
    begin = time.monotonic()
    with Progress(*columns, TimeElapsedColumn(), TextColumn("left"), Left(), console=remarks, transient=True) as bar:
        task = bar.add_task("study", total=total, run="", rate="")

        def show(name: str, forwards: float) -> None:
            bar.update(task, completed=forwards, run=name, rate=_rate(forwards, time.monotonic() - begin))

        yield show


class _Lines:
    """One line every few seconds, for logs."""

    def __init__(self, total: float) -> None:
        self._total, self._begin, self._last = total, time.monotonic(), time.monotonic()

    def __call__(self, name: str, forwards: float, /) -> None:
        now = time.monotonic()
        if now - self._last < LINE_SECONDS or not forwards:
            return
        self._last = now
        spent = now - self._begin
        left = in_words((self._total - forwards) * spent / forwards)
        share = 100 * forwards / self._total
        remark(f"{name}: {share:.0f} % of the study, {_rate(forwards, spent)}, about {left} left")


def in_words(seconds: float) -> str:
    """Seconds, minutes or hours, as a person says it."""
    if seconds < 100:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"


def _rate(forwards: float, seconds: float) -> str:
    return f"{forwards / max(seconds, 1e-9):,.0f} forwards/s"

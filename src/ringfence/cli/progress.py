"""How far a command is, with the time left: bars on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from ringfence.bars import MOMENT, in_words, pace
from ringfence.cli.console import aside, is_check, is_quiet, is_terminal, remark, remarks
from ringfence.progress import listening

if TYPE_CHECKING:
    from ringfence.driver import Progress
    from ringfence.training.checkpoints import Status
    from ringfence.training.run import TrainingRun

COMPLETING = "_RINGFENCE_COMPLETE"
"""In the environment while a shell asks what a word may become."""
LINE_SECONDS = 10.0
WIDE = 80
"""Columns from which on there is room for a long bar."""


class Meter(Protocol):
    """Shows how far the work of this name is; every name has its own bar, or its own lines."""

    def __call__(
        self, name: str, done: float, total: float | None, told: str, left: float | None = None, now: bool = False
    ) -> None:
        """Done of total; told: more about it; left: seconds, None if unknown; now: a line even if one is recent.

        Where nobody knows the total, a bar only shows that it is under way."""


@contextmanager
def meter(shown: bool = True) -> Iterator[Meter]:
    """What shows progress here; loops of the library are not shown beside it."""
    with listening(None), _meter(shown) as show:
        yield show


@contextmanager
def _meter(shown: bool = True) -> Iterator[Meter]:
    if is_quiet() or not shown:
        yield lambda *told, **more: None
    elif is_terminal():
        yield from _bars()
    else:
        yield _Lines()


@contextmanager
def show_waiting(doing: str) -> Iterator[None]:
    """Say on a terminal what takes seconds before there is anything else to tell; loops in it tell how far they are."""
    if is_quiet() or is_check() or COMPLETING in os.environ or not is_terminal():
        yield
        return
    left = _left()
    with remarks.status(doing) as status:

        def tell(loop: str, share: float) -> None:
            seconds = left(loop, share)
            status.update(doing if seconds is None else f"{loop} {share:.0%}, {in_words(seconds)} left")

        with listening(tell):
            yield


@contextmanager
def show_loops() -> Iterator[None]:
    """Show every loop of the library that takes longer than a moment, with the time left."""
    with ExitStack() as opened:
        left = _left()
        shown: list[Meter] = []

        def tell(doing: str, share: float) -> None:
            seconds = left(doing, share)
            if share >= 1:
                shown.clear()
                opened.close()  # what the command prints next stands where the bar was
            elif seconds is not None:
                if not shown:
                    shown.append(opened.enter_context(_meter()))
                shown[0](doing, share, 1.0, f"{share:.0%}", seconds)

        with listening(tell):
            yield


def _left() -> Callable[[str, float], float | None]:
    """Seconds that a loop still takes, by its name and the share that is done; None before a moment has passed."""
    begun: dict[str, float] = {}

    def left(doing: str, share: float) -> float | None:
        passed = time.monotonic() - begun.setdefault(doing, time.monotonic())
        if share >= 1:
            begun.pop(doing)
        return passed * (1 - share) / share if 0 < share < 1 and passed >= MOMENT else None

    return left


def _bars() -> Iterator[Meter]:
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
    from rich.table import Column
    from rich.text import Text

    class Left(ProgressColumn):
        """The time left; where nobody knows it, how long it has taken so far, which shows that it goes on."""

        def render(self, task: Task) -> Text:
            passed = task.elapsed or 0.0
            return Text(task.fields["left"] or (f"{in_words(passed)} so far" if passed > MOMENT else ""))

    # In a narrow window the bar is short, and words are cut, never the name and the time left.
    bar = BarColumn(20 if remarks.width >= WIDE else 6)
    words = TextColumn("{task.fields[told]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    columns = (TextColumn("{task.description}"), bar, words, Left())
    with Progress(*columns, console=remarks, transient=True, expand=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(
            name: str, done: float, total: float | None, told: str, left: float | None = None, now: bool = False
        ) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total, told="", left="")
            if total is not None and done >= total:  # nobody looks at what is done
                bars.remove_task(tasks.pop(name))
                return
            bars.update(tasks[name], completed=done, told=told, left="" if left is None else f"{in_words(left)} left")

        yield show


class _Lines:
    """One line for each name every few seconds, for logs."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._last: dict[str, float] = {}

    def __call__(
        self, name: str, done: float, total: float | None, told: str, left: float | None = None, now: bool = False
    ) -> None:
        """A line, unless the last one is recent."""
        if not now and time.monotonic() - self._last.get(name, self._begin) < LINE_SECONDS:
            return
        self._last[name] = time.monotonic()
        remark(f"{name}: {told}" + ("" if left is None else f", about {in_words(left)} left"))


@contextmanager
def show_progress(
    total: int, done: int, doing: str = "certifying", draws: int | None = None
) -> Iterator[Callable[[Progress], None]]:
    """A callback for certify; total inputs, done of them already before this session; draws of each, where known."""
    with meter() as show:
        show(doing, done, total, "trying the network first")  # on a few inputs, in other orders and company

        def report(progress: Progress) -> None:
            told, left = pace(progress, total, done, draws)
            show(doing, done + progress.inputs, total, told, left)

        yield report


@contextmanager
def show_training(run: TrainingRun, at_once: int = 1, named: str = "") -> Iterator[Callable[[int, Status], None]]:
    """A callback for run_training: the number of a training and how far it is; the time left is that of all of them.

    named: what their names begin with, where other trainings are told of in the same place.
    """
    begun, last = set[int](), dict[str, str]()
    takes, before = 0.0, f"{named}training"
    with meter() as show:
        if is_terminal():
            show(before, 0, 1, "loading the data")

        def report(training: int, status: Status) -> None:
            nonlocal takes
            if not begun and is_terminal():
                show(before, 1, 1, "")
            name = named + ("ensemble" if run.job.objective.grouping == "together" else f"member {training}")
            # The first and the last line of a training are always told.
            now = training not in begun or status.epoch == status.epochs
            begun.add(training)
            done, total = (status.epoch - 1) * status.steps + status.step, status.epochs * status.steps
            takes = status.left * total / (total - done) if done < total else takes
            waiting = sum(one not in begun and not run.done(one) for one in run.job.trainings)
            last[name] = describe(status)
            told = last[name] + (f", {waiting} more to train" if waiting else "")
            show(name, done, total, told, status.left + waiting * takes / at_once, now)

        yield report
    if is_terminal():  # whose bars are gone; elsewhere the last lines stand
        for name, told in last.items():
            aside(f"{name}: {told}")


def describe(status: Status) -> str:
    """Epoch, accuracies and loss terms in one line, whose end a narrow window cuts."""
    terms = ", ".join(f"{name} {value:.4g}" for name, value in status.terms.items())
    right = "" if math.isnan(status.accuracy) else f"noisy accuracy {100 * status.accuracy:.2f}%, "
    held = "" if status.held_out is None else f"held out {100 * status.held_out:.2f}%, "
    return f"epoch {status.epoch}/{status.epochs} step {status.step}/{status.steps}: {right}{held}{terms}"

"""How far a training is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ringfence.cli.console import remark, remarks
from ringfence.cli.progress import show_progress, shown

if TYPE_CHECKING:
    from ringfence.training.log import Status
    from ringfence.training.run import TrainingRun


class Report(Protocol):
    """Takes how far a member is."""

    def __call__(self, member: int, status: Status, /) -> None:
        """Show it."""


def count_labels(run: TrainingRun, quiet: bool) -> None:
    """Count, with progress, what labels are made from where the objective asks for it; it stays in the run's folder."""
    from ringfence.driver import Progress
    from ringfence.sampling import pick_device
    from ringfence.store.lock import locked

    objective = run.job.objective
    if run.finished or objective.questions(run.job.sigma) is None:
        return
    with locked(run.out):
        run.keep_settings()  # before the work: a folder of another training is refused at once
        data = run.load_data()
        answers = run.answers(data)
        assert answers is not None
        with show_progress(len(data), answers.done, quiet, "labelling") as report:
            answers.count(pick_device(run.device), lambda *seen: report(Progress(*seen)))
    said = objective.about_labels(objective.labelled(data, answers.votes))
    if said and not quiet:
        remark(f"labels: {run.job.classifier} is {said}")


@contextmanager
def show_training(run: TrainingRun, quiet: bool) -> Iterator[Report]:
    """A callback for run_training: bars on a terminal, plain lines elsewhere."""
    yield from shown(quiet, lambda member, status: None, lambda: _bars(run), lambda: _Lines(run))


def _bars(run: TrainingRun) -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TaskID, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=remarks, transient=True, expand=True) as bar:
        tasks: dict[int, TaskID] = {}

        def show(member: int, status: Status, /) -> None:
            if member not in tasks:
                name = _name(run, member)
                tasks[member] = bar.add_task(name, total=status.epochs * status.steps, told="")
            done = (status.epoch - 1) * status.steps + status.step
            bar.update(tasks[member], completed=done, told=_in_short(status))

        yield show


class _Lines:
    """A line after an epoch, ten at most per member and minute."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._last: dict[int, float] = {}

    def __call__(self, member: int, status: Status, /) -> None:
        """The line, if it is due."""
        before = self._last.get(member, -1e9)
        if status.seconds - before < 6 and status.epoch < status.epochs:
            return
        self._last[member] = status.seconds
        remark(f"{_name(self._run, member)}: {describe(status)}")


def _name(run: TrainingRun, training: int) -> str:
    return "ensemble" if run.job.objective.grouping == "together" else f"member {training}"


def describe(status: Status) -> str:
    """Epoch, loss terms, noisy accuracy and time left in one line."""
    terms = ", ".join(f"{name} {value:.4g}" for name, value in status.terms.items())
    right = "" if math.isnan(status.accuracy) else f", noisy accuracy {100 * status.accuracy:.2f}%"
    held = "" if status.held_out is None else f", held out {100 * status.held_out:.2f}%"
    where = f"epoch {status.epoch}/{status.epochs} step {status.step}/{status.steps}"
    return f"{where}: {terms}{right}{held}, about {status.left:.0f} s left"


def _in_short(status: Status) -> str:
    """The same for a bar beside it in a narrow window; terms and step are in the log."""
    held = "" if status.held_out is None else f", held out {100 * status.held_out:.1f}%"
    right = "" if math.isnan(status.accuracy) else f", noisy {100 * status.accuracy:.1f}%"
    told = f"epoch {status.epoch}/{status.epochs}, loss {status.loss:.3g}{right}{held}"
    return f"{told}, {status.left:.0f} s left"

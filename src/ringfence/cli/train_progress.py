"""How far a training is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ringfence.cli.console import remark, remarks
from ringfence.cli.progress import show_progress, shown

if TYPE_CHECKING:
    from ringfence.training.course import Status
    from ringfence.training.job import TrainJob


class Report(Protocol):
    """Takes how far a member is."""

    def __call__(self, member: int, status: Status, /) -> None:
        """Show it."""


def count_labels(job: TrainJob, quiet: bool) -> None:
    """Count, with progress, what the labels of ``select`` or ``catrs`` are made from; it stays in the job's folder."""
    from ringfence.driver import Progress
    from ringfence.sampling import pick_device
    from ringfence.store.lock import locked
    from ringfence.training.checkpoints import freeze_settings
    from ringfence.training.objectives import Catrs, Select
    from ringfence.training.running import class_votes, right_answers
    from ringfence.training.selection import RightAnswers

    objective = job.plan(0).objective
    if job.finished or not isinstance(objective, Select | Catrs):
        return
    with locked(job.out, unlocked=True):
        freeze_settings(job.out, job.described())  # before the work: a folder of another training is refused at once
        answers = right_answers(job) if isinstance(objective, Select) else class_votes(job)
        total = len(answers.counts)
        with show_progress(total, answers.done, quiet, "labelling") as report:
            answers.count(pick_device(job.device), lambda *seen: report(Progress(*seen)))
    if isinstance(objective, Select) and isinstance(answers, RightAnswers) and not quiet:
        worth = int(answers.labels(objective.eta).y.sum())
        enough = f"right on a share of at least {objective.eta:g} of {objective.n} noisy copies"
        remark(f"labels: {job.classifier} is {enough} for {worth} of {total} training inputs")


@contextmanager
def show_training(job: TrainJob, quiet: bool) -> Iterator[Report]:
    """A callback for run_job: bars on a terminal, plain lines elsewhere."""
    yield from shown(quiet, lambda member, status: None, lambda: _bars(job), lambda: _Lines(job))


def _bars(job: TrainJob) -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TaskID, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=remarks, transient=True, expand=True) as bar:
        tasks: dict[int, TaskID] = {}

        def show(member: int, status: Status, /) -> None:
            if member not in tasks:
                name = "ensemble" if job.joint else f"member {member}"
                tasks[member] = bar.add_task(name, total=status.epochs * status.steps, told="")
            done = (status.epoch - 1) * status.steps + status.step
            bar.update(tasks[member], completed=done, told=_in_short(status))

        yield show


class _Lines:
    """A line after an epoch, ten at most per member and minute."""

    def __init__(self, job: TrainJob) -> None:
        self._job = job
        self._last: dict[int, float] = {}

    def __call__(self, member: int, status: Status, /) -> None:
        """The line, if it is due."""
        before = self._last.get(member, -1e9)
        if status.seconds - before < 6 and status.epoch < status.epochs:
            return
        self._last[member] = status.seconds
        name = "ensemble" if self._job.joint else f"member {member}"
        remark(f"{name}: {describe(status)}")


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

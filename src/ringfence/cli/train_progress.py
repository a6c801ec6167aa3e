"""How far a training is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringfence.cli.console import remark
from ringfence.cli.progress import meter, show_progress

if TYPE_CHECKING:
    from ringfence.training.course import Status
    from ringfence.training.job import TrainJob


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
def show_training(job: TrainJob, quiet: bool) -> Iterator[Callable[[int, Status], None]]:
    """A callback for run_job: the number of a member and how far it is."""
    begun: set[int] = set()
    with meter(quiet) as show:

        def report(member: int, status: Status) -> None:
            name = "ensemble" if job.joint else f"member {member}"
            done, total = (status.epoch - 1) * status.steps + status.step, status.epochs * status.steps
            # The first and the last line of a member are always told.
            now = member not in begun or status.epoch == status.epochs
            begun.add(member)
            show(name, done, total, describe(status), status.left, now)

        yield report


def describe(status: Status) -> str:
    """Epoch, loss terms and accuracies in one line."""
    terms = ", ".join(f"{name} {value:.4g}" for name, value in status.terms.items())
    right = "" if math.isnan(status.accuracy) else f", noisy accuracy {100 * status.accuracy:.2f}%"
    held = "" if status.held_out is None else f", held out {100 * status.held_out:.2f}%"
    return f"epoch {status.epoch}/{status.epochs} step {status.step}/{status.steps}: {terms}{right}{held}"

"""How far a training is: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringfence.cli.console import remark
from ringfence.cli.progress import meter, show_progress

if TYPE_CHECKING:
    from ringfence.training.checkpoints import Status
    from ringfence.training.run import TrainingRun


def count_labels(run: TrainingRun, quiet: bool) -> None:
    """Count, with progress, what labels are made from where the objective asks for it; it stays in the run's folder."""
    from ringfence.driver import Progress
    from ringfence.sampling import pick_device
    from ringfence.store.atomic import locked

    objective = run.job.objective
    if run.finished or objective.questions(run.job.sigma) is None:
        return
    with locked(run.out, unlocked=True):
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
def show_training(run: TrainingRun, quiet: bool) -> Iterator[Callable[[int, Status], None]]:
    """A callback for run_training: the number of a training and how far it is."""
    begun: set[int] = set()
    with meter(quiet) as show:

        def report(training: int, status: Status) -> None:
            name = "ensemble" if run.job.objective.grouping == "together" else f"member {training}"
            done, total = (status.epoch - 1) * status.steps + status.step, status.epochs * status.steps
            # The first and the last line of a training are always told.
            now = training not in begun or status.epoch == status.epochs
            begun.add(training)
            show(name, done, total, describe(status), status.left, now)

        yield report


def describe(status: Status) -> str:
    """Epoch, loss terms and accuracies in one line."""
    terms = ", ".join(f"{name} {value:.4g}" for name, value in status.terms.items())
    right = "" if math.isnan(status.accuracy) else f", noisy accuracy {100 * status.accuracy:.2f}%"
    held = "" if status.held_out is None else f", held out {100 * status.held_out:.2f}%"
    return f"epoch {status.epoch}/{status.epochs} step {status.step}/{status.steps}: {terms}{right}{held}"

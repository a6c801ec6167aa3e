"""How far a sweep is, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from ringfence.cli.console import is_terminal, remark
from ringfence.cli.progress import Meter, in_words, meter
from ringfence.printable import one_line
from ringfence.sweep import Estimates, Job, Schedule, State, SweepFolder, Watch


@contextmanager
def show_sweep(schedule: Schedule, quiet: bool) -> Iterator[Watch]:
    """What a schedule tells how far it is."""
    # A log shows what begins and ends, not that time passes.
    with meter(quiet or not is_terminal()) as show:
        yield Shown(schedule, show, quiet)


@final
class Shown:
    """A line when a job begins and one when it ends; bars for the sweep and for the jobs that run."""

    def __init__(self, schedule: Schedule, show: Meter, quiet: bool) -> None:
        self._schedule, self._show, self._quiet = schedule, show, quiet

    def begin(self, jobs: Sequence[Job]) -> None:
        """These start now."""
        together = " (together in one process)" if len(jobs) > 1 else ""
        self._say(f"begins: {', '.join(job.key for job in jobs)}{together}")

    def end(self, job: Job, state: State, minutes: float) -> None:
        """It ended."""
        self._show(job.key, 1, 1, state)
        self._say(f"{state}: {job.key} after {in_words(60 * minutes)}; {self._done()} jobs done")

    def look(self, running: Sequence[Job], left: float | None) -> None:
        """How far everything is, and the last words of every job that runs."""
        states = self._schedule.states
        self._show(
            "sweep",
            len(states) - len(self._schedule.waiting()),
            len(states),
            f"{self._done()} jobs",
            None if left is None else 60 * left,
        )
        for job in running:
            self._show(job.key, 0, 1, one_line(self._schedule.work.last_words(job)))

    def _done(self) -> str:
        states = self._schedule.states.values()
        return f"{sum(one == 'done' for one in states)} of {len(states)}"

    def _say(self, text: str) -> None:
        if not self._quiet:
            remark(text)


def announce(schedule: Schedule, every: Sequence[Job]) -> None:
    """What there is to do, and about how long it takes."""
    waiting = schedule.waiting()
    estimates = Estimates(every, schedule.work)
    known = [minutes for job in waiting if (minutes := estimates.of(job)) is not None]
    unknown = len(waiting) - len(known)
    took = [] if not known else [f"about {in_words(60 * sum(known))} of device time"]
    took += [] if not unknown else [f"{unknown} of unknown length"]
    told = f"{len(waiting)} of {len(schedule.chosen)} jobs to do" + (f" ({', '.join(took)})" if waiting else "")
    remark(f"{told}, in {schedule.work.path}")


def conclude(schedule: Schedule) -> None:
    """What is not done, and why."""
    work: SweepFolder = schedule.work
    for job in schedule.chosen:
        if schedule.states[job.key] == "failed":
            remark(f"failed: {job.key}: {work.last_words(job, 3)}\nall it printed: {work.path / work.log_of(job)}")
    for job in schedule.blocked():
        remark(f"not run: {job.key} needs {', '.join(schedule.missing(job))}")

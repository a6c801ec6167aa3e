"""How far a sweep is: a line for each job that runs on a terminal, plain lines elsewhere; and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ringfence.cli.console import is_terminal, remark, remarks
from ringfence.printable import one_line
from ringfence.sweep import Estimates, Job, Schedule, State, Watch, Work


class Lines:
    """A line when a job begins and one when it ends."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def begin(self, jobs: Sequence[Job]) -> None:
        """These start now."""
        together = " (together in one process)" if len(jobs) > 1 else ""
        remark(f"begins: {', '.join(job.key for job in jobs)}{together}")

    def end(self, job: Job, state: State, minutes: float) -> None:
        """It ended."""
        states = self._schedule.states.values()
        done = sum(one == "done" for one in states)
        remark(f"{state}: {job.key} after {spoken(minutes)}; {done} of {len(states)} jobs done")

    def look(self, running: Sequence[Job], left: float | None) -> None:
        """A log shows what changes, not that time passes."""


class Silent(Lines):
    """Nothing at all."""

    def begin(self, jobs: Sequence[Job]) -> None:
        """Not told."""

    def end(self, job: Job, state: State, minutes: float) -> None:
        """Not told."""


@contextmanager
def show_sweep(schedule: Schedule, quiet: bool) -> Iterator[Watch]:
    """What a schedule tells how far it is."""
    if is_terminal() and not quiet:
        yield from _screen(schedule)
    else:
        yield Silent(schedule) if quiet else Lines(schedule)


def _screen(schedule: Schedule) -> Iterator[Watch]:
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    class Screen(Lines):
        def look(self, running: Sequence[Job], left: float | None) -> None:
            states = schedule.states.values()
            done, every = sum(one == "done" for one in states), len(states)
            told = f"{done} of {every} jobs" + ("" if left is None or left < 1 / 60 else f", about {spoken(left)} left")
            grid = Table.grid(padding=(0, 1), expand=True)
            grid.add_column(no_wrap=True, max_width=remarks.width // 2)
            grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
            grid.add_row(ProgressBar(total=every, completed=done, width=20), Text(told))
            for job in running:
                grid.add_row(Text(job.key), Text(one_line(schedule.work.last_words(job)), style="dim"))
            live.update(grid)

    with Live(console=remarks, transient=True, refresh_per_second=4) as live:
        yield Screen(schedule)


def announce(schedule: Schedule, every: Sequence[Job]) -> None:
    """What there is to do, and about how long it takes."""
    waiting = schedule.waiting()
    estimates = Estimates(every, schedule.work)
    known = [minutes for job in waiting if (minutes := estimates.of(job)) is not None]
    unknown = len(waiting) - len(known)
    took = [] if not known else [f"about {spoken(sum(known))} of device time"]
    took += [] if not unknown else [f"{unknown} of unknown length"]
    told = f"{len(waiting)} of {len(schedule.chosen)} jobs to do" + (f" ({', '.join(took)})" if waiting else "")
    remark(f"{told}, in {schedule.work.path}")


def conclude(schedule: Schedule) -> None:
    """What is not done, and why."""
    work: Work = schedule.work
    for job in schedule.chosen:
        if schedule.states[job.key] == "failed":
            remark(f"failed: {job.key}: {work.last_words(job, 3)}\nall it printed: {work.path / work.log_of(job)}")
    for job in schedule.blocked():
        remark(f"not run: {job.key} needs {', '.join(schedule.missing(job))}")


def spoken(minutes: float) -> str:
    """A time as people say it."""
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.1f} min" if minutes < 90 else f"{minutes / 60:.1f} h"

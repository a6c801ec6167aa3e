"""Runs the jobs of a sweep as far as the time goes: each after those it needs, several side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, Protocol

from ringfence.errors import ArgumentError
from ringfence.sweep.job import Job
from ringfence.sweep.worker import Runs

State = Literal["done", "failed", "stopped", "waiting"]
LOOK = 0.1
"""Seconds between two looks at the workers."""


class Watch(Protocol):
    """Is told what happens."""

    def begin(self, jobs: Sequence[Job]) -> None:
        """These start now, together."""

    def end(self, job: Job, state: State, minutes: float) -> None:
        """It ended."""

    def look(self, running: Sequence[Job], left: float | None) -> None:
        """These are running; left: minutes until all is done, as far as that can be said."""


@dataclass
class _Group:
    """Jobs that one worker runs at the same time."""

    jobs: list[Job]
    worker: Runs
    begun: float = field(default_factory=time.monotonic)

    @property
    def minutes(self) -> float:
        """Device minutes that each of them has taken."""
        return (time.monotonic() - self.begun) / 60 / len(self.jobs)


class Estimates:
    """Device minutes of jobs: what it took, what the file says, or what others of the same entry took."""

    def __init__(self, every: Sequence[Job]) -> None:
        measured = [(job, minutes) for job in every if (minutes := job.work.measured(job)) is not None]
        self._measured = {job.key: minutes for job, minutes in measured}
        alike: dict[tuple[str, str], list[float]] = {}
        for job, minutes in measured:
            alike.setdefault((job.sweep, job.entry), []).append(minutes)
        self._like = {entry: fmean(each) for entry, each in alike.items()}

    def of(self, job: Job) -> float | None:
        """The minutes; None where nobody knows."""
        known = (self._measured.get(job.key), job.minutes, self._like.get((job.sweep, job.entry)))
        return next((minutes for minutes in known if minutes is not None), None)

    def total(self, jobs: Sequence[Job]) -> float | None:
        """The minutes of all; None where those of one are not known."""
        return known_sum([0.0, *map(self.of, jobs)])

    def rows(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Entry by entry: how many jobs, how many of them are done, the minutes of all and of those left."""
        found: dict[tuple[str, str, str], list[Job]] = {}
        for job in jobs:
            found.setdefault((job.sweep, job.command, job.entry), []).append(job)
        rows = []
        for (_, command, entry), each in found.items():
            left = [job for job in each if not job.done]
            counts = {"jobs": len(each), "done": len(each) - len(left)}
            minutes = {"minutes": self.total(each), "left": self.total(left)}
            rows.append({"command": command, "name": entry, **counts, **minutes})
        return rows


def known_sum(numbers: Sequence[float | None]) -> float | None:
    """Of all of them; None where one is not known."""
    return None if None in numbers else sum(one for one in numbers if one is not None)


def seconds_of(budget: str | None) -> float | None:
    """The seconds of a time such as 9m; None: without end."""
    if budget is None:
        return None
    number, unit = budget[:-1], {"s": 1, "m": 60, "h": 3600}.get(budget[-1:])
    try:
        seconds = float(number) * (unit or float("nan"))
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds < 1e9:
        raise ArgumentError("budget", "must be a time in s, m or h", repr(budget), "Write e.g. 9m, 90s or 2h.")
    return seconds


class Schedule:
    """The chosen jobs of one or more sweeps, begun in this order. every: all of their jobs; workers: who runs them."""

    def __init__(self, chosen: Sequence[Job], every: Sequence[Job], workers: Sequence[Runs]) -> None:
        self.chosen = tuple(chosen)
        self.states: dict[str, State] = {job.key: "done" if job.done else "waiting" for job in chosen}
        self._there = {job.key for job in every if job.key not in self.states and job.work.there(job)}
        self._estimates = Estimates(every)
        self._until: float | None = None
        self._idle = list(workers)
        self._running: list[_Group] = []
        self._alone: set[str] = set()
        self._finished = 0.0

    def waiting(self) -> list[Job]:
        """Chosen jobs that are not begun, or were stopped."""
        return [job for job in self.chosen if self.states[job.key] in ("waiting", "stopped")]

    def missing(self, job: Job) -> list[str]:
        """Keys of what it needs that is not there."""
        return [key for key in job.needs if key not in self._there and self.states.get(key) != "done"]

    def blocked(self) -> list[Job]:
        """Those among them that another run would not begin either: what they need failed, or was not chosen."""
        waiting = [job for job in self.chosen if self.states[job.key] == "waiting"]
        coming = {key for key, state in self.states.items() if state in ("waiting", "stopped")}
        while lost := [job for job in waiting if job.key in coming and not coming.issuperset(self.missing(job))]:
            coming -= {job.key for job in lost}
        return [job for job in waiting if job.key not in coming]

    def run(self, watch: Watch, seconds: float | None = None) -> None:
        """Run what is not done until the seconds are over: then what is running is stopped, and goes on next time.
        What would not come as far as its first checkpoint by then is not begun.
        """
        begun = time.monotonic()
        self._until = None if seconds is None else begun + seconds
        try:
            while seconds is None or time.monotonic() - begun < seconds:
                while (group := self._next()) is not None:
                    work = group.jobs[0].work
                    group.worker.begin([job.words for job in group.jobs], work.path, work.begin_log(group.jobs))
                    self._running.append(group)
                    watch.begin(group.jobs)
                if not self._running:
                    return
                for one in list(self._running):
                    if (code := one.worker.code()) is not None:
                        self._end(one, code, watch)
                watch.look([job for one in self._running for job in one.jobs], self._left(begun))
                time.sleep(LOOK)
        finally:
            self._stop(watch)

    def _next(self) -> _Group | None:
        """The next jobs that can begin: the first of them, with those that may share its process."""
        busy = {job.key for group in self._running for job in group.jobs}
        ready = [job for job in self.chosen if self.states[job.key] == "waiting" and job.key not in busy]
        ready = [job for job in ready if not self.missing(job)]
        free = len(self._idle) + len(self._running) - len(busy)
        if free < 1 or not self._idle or not (ready := [job for job in ready if self._fits(job, len(busy) + 1)]):
            return None
        first = ready[0]
        group = [first]
        if first.checked.shares is not None and first.key not in self._alone:
            kind = (first.work, first.checked.shares)
            alike = [job for job in ready if (job.work, job.checked.shares) == kind and job.key not in self._alone]
            while len(group) < min(free, len(alike)) and self._fits(first, len(busy) + len(group) + 1):
                group.append(alike[len(group)])
        return _Group(group, self._idle.pop(0))

    def _fits(self, job: Job, beside: int) -> bool:
        """Whether it comes as far as its first checkpoint while so many share the device; who knows no minutes, may."""
        if self._until is None:
            return True
        minutes = job.checked.begins + job.checked.first * beside * (self._estimates.of(job) or 0.0)
        return time.monotonic() + 60 * minutes < self._until

    def _end(self, group: _Group, code: int, watch: Watch) -> None:
        """Note how it ended; those that failed together are tried alone, so that one does not stop the others."""
        self._running.remove(group)
        self._idle.append(group.worker)
        if code and len(group.jobs) > 1:
            self._alone |= {job.key for job in group.jobs}
            return
        for job in group.jobs:
            if code == 0 and job.work.there(job):
                self.states[job.key] = "done"
                self._finished += self._estimates.of(job) or 0.0
                job.work.end(job, group.minutes)
            else:
                self.states[job.key] = "failed"
            watch.end(job, self.states[job.key], group.minutes)

    def _stop(self, watch: Watch) -> None:
        """End all workers; what they were at keeps its checkpoints and records."""
        workers = [*self._idle, *(group.worker for group in self._running)]
        for worker in workers:
            worker.ask_to_end()
        for worker in workers:
            worker.end()
        for group in self._running:
            for job in group.jobs:
                self.states[job.key] = "stopped"
                watch.end(job, "stopped", group.minutes)
        self._running = []

    def _left(self, begun: float) -> float | None:
        """Minutes until all is done, at the pace of this session: the file's minutes may be another machine's."""
        ahead = self._estimates.total(self.waiting())
        if ahead is None:
            return None
        ahead -= sum(
            min(group.minutes, self._estimates.of(job) or 0.0) for group in self._running for job in group.jobs
        )
        pace = self._finished / max((time.monotonic() - begun) / 60, 1e-9)
        return ahead / pace if pace > 0 else ahead

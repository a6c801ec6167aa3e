"""Workers somewhere else do the work: hired, fed, listened to, replaced when they die."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

from ringfence.data import Input
from ringfence.driver import Progress
from ringfence.engines.dispatch import Dispatch
from ringfence.engines.worker import Report
from ringfence.errors import ClassifierError, ModelError
from ringfence.record import Record
from ringfence.sampling import ForwardPlan
from ringfence.work import Execution

BLAMED = 2
"""Inputs that a worker failed on and another one did not, before it is taken for broken."""

DEATHS = 3
"""Workers that may die or fail to start one after the other, per worker, while nothing is decided."""

PAUSE = 60.0
"""Seconds between two tries to start a worker, at most, where they fail and others work."""


@dataclass(frozen=True)
class Message:
    """From a worker: a report, or how it died; both None once it is ready."""

    worker: str
    report: Report | None = None
    death: str | None = None


class Crew(ABC):
    """Where workers live. A worker is known by its name."""

    @abstractmethod
    def hire(self) -> str:
        """A new worker, which tells when it is ready."""

    @abstractmethod
    def begin(self, worker: str, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        """Start a round there with some inputs."""

    @abstractmethod
    def feed(self, worker: str, items: list[Input], last: bool) -> None:
        """Send it inputs."""

    @abstractmethod
    def messages(self, patience: float) -> Iterable[Message]:
        """What came in; waits so long for something. A worker whose report came is asked for the next one."""

    @abstractmethod
    def dismiss(self, worker: str) -> None:
        """Let it go, whatever it does."""

    @abstractmethod
    def wanted(self) -> int:
        """Workers that there is room for now."""


@dataclass
class _Seen:
    """What is known of a worker: whether it has a round open, how far that is, and when it last got on."""

    ready: bool = False
    open: bool = False
    moved: float = field(default_factory=time.monotonic)
    draws_and_batches: tuple[int, int] = (0, 0)


@final
class Manager:
    """One loop in the driver's process: it alone decides which answers count, and it alone writes."""

    def __init__(self, crew: Crew, inputs: Iterator[Input], execution: Execution, patience: float) -> None:
        self._crew, self._execution, self._patience = crew, execution, patience
        self._plan = None if execution.plan is None else execution.plan.settings()
        self._seen: dict[str, _Seen] = {}
        self._drawn, self._deaths, self._told, self._begin = 0, 0, 0, time.monotonic()
        self._refused, self._hire_at = 0, self._begin
        self.dispatch = Dispatch(inputs, failed_before=execution.failed_before)

    def records(self) -> Iterator[Record]:
        """Records of every input, all lanes of one together; those that failed are told to ``execution.on_failed``."""
        dispatch = self.dispatch
        self._staff()
        while not dispatch.finished:
            for message in self._crew.messages(1.0):
                yield from self._take(message)
            self._dismiss_silent()
            for worker in list(self._seen):
                self._occupy(worker)
            self._staff()
            if reason := dispatch.hopeless:
                raise ClassifierError("classifier", "must answer", reason, "Try it on one input in this process first.")
        self._report()

    def _staff(self) -> None:
        """As many workers as there is room for; the first one finds the plan that all run by.

        While others work, those that fail to start are tried less and less often: a machine that cannot load the
        model would do nothing else, for as long as the run takes.
        """
        wanted = self._crew.wanted()
        self.dispatch.workers = max(1, wanted)
        if time.monotonic() < self._hire_at and any(one.open for one in self._seen.values()):
            return
        while len(self._seen) < wanted and not (self.dispatch.idle and self._seen):
            self._seen[self._crew.hire()] = _Seen()

    def _take(self, message: Message) -> Iterator[Record]:
        if (seen := self._seen.get(message.worker)) is None:
            return  # dismissed meanwhile
        if message.death is not None:
            self._drop(message.worker, message.death)
            return
        report = message.report
        if report is None:
            seen.ready, seen.moved, self._refused = True, time.monotonic(), 0
            return
        if self._plan is None and report.plan is not None:
            self._plan = report.plan
            self._execution.on_plan(ForwardPlan.stored(report.plan))
        self.dispatch.kinds[message.worker] = report.kind
        now = (report.draws, report.batches)
        self._drawn += report.draws - seen.draws_and_batches[0]
        if now != seen.draws_and_batches or report.records:
            seen.draws_and_batches, seen.moved = now, time.monotonic()
        for lanes in report.records:
            if self.dispatch.answer(message.worker, lanes[0].input_id):
                self._deaths = 0
                yield from lanes
        if report.ended is not None:
            self.dispatch.ended(message.worker, report.ended and f"{report.ended} (worker {message.worker})")
            seen.open, seen.draws_and_batches = False, (0, 0)
        elif report.hungry and seen.open:
            items = self.dispatch.group(message.worker)
            self._crew.feed(message.worker, items, last=not items)
        self._report()
        for worker, faults in list(self.dispatch.blamed.items()):
            if faults >= BLAMED and worker in self._seen and len(self._seen) > 1:
                self._crew.dismiss(worker)
                self._drop(worker, "it failed on inputs that others answered")

    def _occupy(self, worker: str) -> None:
        """Begin a round where a worker is free: with a suspect alone, or with whatever is next."""
        seen = self._seen[worker]
        if not seen.ready or seen.open:
            return
        if self._plan is None and any(one.open for one in self._seen.values()):
            return  # the first one finds the plan
        single = self.dispatch.suspect(worker) or self.dispatch.spare(worker)
        items = [single] if single is not None else self.dispatch.group(worker)
        if items:
            seen.open, seen.moved = True, time.monotonic()
            self._crew.begin(worker, self._plan, items, last=single is not None)

    def _dismiss_silent(self) -> None:
        for worker, seen in list(self._seen.items()):
            if seen.open and time.monotonic() - seen.moved > self._patience:
                self._crew.dismiss(worker)
                self._drop(worker, f"it did nothing for {self._patience:g} s")

    def _drop(self, worker: str, reason: str) -> None:
        seen = self._seen.pop(worker)
        lost = self.dispatch.lost(worker, reason)
        inputs = "1 input goes" if lost == 1 else f"{lost} inputs go"
        self._execution.on_remark(f"worker {worker} is gone: {reason}; {inputs} to others")
        self._deaths += 1
        if not seen.ready:
            self._refused += 1
            self._hire_at = time.monotonic() + min(PAUSE, 2.0 ** min(self._refused, 10))
        if self._deaths > DEATHS * self.dispatch.workers:
            rule = "must live long enough to decide an input" if seen.ready else "must be able to load the model"
            died = f"{self._deaths} died in turn, the last: {reason.removesuffix('.')}"
            raise ModelError("every worker", rule, died, "Mend what it died of, and run the same command again.")

    def _report(self) -> None:
        dispatch = self.dispatch
        for input_id, reason in list(dispatch.failed.items())[self._told :]:
            self._execution.on_failed(input_id, reason)
        self._told = len(dispatch.failed)
        self._execution.on_progress(Progress(dispatch.answered, self._drawn, time.monotonic() - self._begin))

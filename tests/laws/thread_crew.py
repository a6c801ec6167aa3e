"""A crew in this process whose workers die, hang, lie or fail when told to, as those of a cluster do by themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from ringfence.data import Input
from ringfence.engines.crew import Crew, Manager, Message
from ringfence.engines.worker import Parcel, Worker
from ringfence.record import Record
from ringfence.work import Engine, Work


class ThreadCrew(Crew):
    """fault(worker, reports so far) -> None, "dies", "hangs", or "twice" (tells its records two times)."""

    def __init__(
        self, parcels: Callable[[int], Parcel], room: Callable[[], int], fault: Callable[[str, int], str | None]
    ) -> None:
        self._parcels, self._room, self._fault = parcels, room, fault
        self._alive: dict[str, Worker | None] = {}
        self._new: list[str] = []
        self._round: set[str] = set()
        self._reports: dict[str, int] = {}
        self.hired = 0

    def hire(self) -> str:
        name = str(self.hired)
        self._alive[name], self._reports[name] = None, 0
        self.hired += 1
        self._new.append(name)
        return name

    def begin(self, worker: str, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        found = self._alive[worker]
        assert found is not None
        found.begin(plan, items, last)
        self._round.add(worker)

    def feed(self, worker: str, items: list[Input], last: bool) -> None:
        found = self._alive[worker]
        assert found is not None
        found.feed(items, last)

    def messages(self, patience: float) -> Iterable[Message]:
        for name in self._new:
            try:
                self._alive[name] = Worker(self._parcels(int(name)))
            except Exception as error:
                yield Message(name, death=str(error))
            else:
                yield Message(name)
        self._new = []
        for name in list(self._round):
            found = self._alive[name]
            assert found is not None
            self._reports[name] += 1
            fault = self._fault(name, self._reports[name])
            if fault == "hangs":
                continue
            if fault == "dies":
                self._round.discard(name)
                yield Message(name, death="killed")
                continue
            report = found.report(0.02)
            if report.ended is not None:
                self._round.discard(name)
            if fault == "twice":
                yield Message(name, replace(report, hungry=False, ended=None))
            yield Message(name, report)

    def dismiss(self, worker: str) -> None:
        self._round.discard(worker)
        self._alive.pop(worker, None)

    def wanted(self) -> int:
        return self._room()


@dataclass(frozen=True)
class Threads(Engine):
    """The engine of such a crew; classifier(worker) may be another one there, room() another number later on."""

    workers: int = 2
    fault: Callable[[str, int], str | None] = lambda worker, reports: None
    classifier: Callable[[int, Any], Any] = lambda worker, module: module
    patience: float = 60.0
    load: Callable[[int], None] = lambda worker: None
    room: Callable[[], int] | None = None
    name = "threads"

    def records(self, work: Work) -> Iterator[Record]:
        inputs = iter(work.inputs)
        if (first := next(inputs, None)) is None:
            return

        def parcel(worker: int) -> Parcel:
            self.load(worker)
            sent = Parcel.of(work, first)
            module = self.classifier(worker, copy.deepcopy(sent.work.classifier))
            return replace(sent, work=replace(sent.work, classifier=module))

        crew = ThreadCrew(parcel, self.room or (lambda: self.workers), self.fault)
        yield from Manager(crew, chain([first], inputs), work.execution, self.patience).records()

"""A crew of processes on this machine, for the engine interface without Ray: spawned, as CUDA wants, a pipe each."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection, wait
from typing import Any

from ringfence.data import Input
from ringfence.engines.crew import Crew, Manager, Message
from ringfence.engines.worker import Parcel, Report, Worker
from ringfence.record import Record
from ringfence.work import Engine, Work


def serve(parcel: Parcel, pipe: Connection) -> None:
    """Do what the pipe says, one call after the other, and answer each."""
    worker = Worker(parcel)
    pipe.send(None)
    while True:
        name, words = pipe.recv()
        pipe.send(getattr(worker, name)(*words))


class ProcessCrew(Crew):
    """Calls wait for their answer, apart from the report, which is asked for as soon as the last one came."""

    def __init__(self, parcel: Parcel, workers: int) -> None:
        self._parcel, self._workers = parcel, workers
        self._pipes: dict[str, Connection] = {}
        self._processes: dict[str, Any] = {}
        self._asked: set[str] = set()
        self._spawn = multiprocessing.get_context("spawn")

    def hire(self) -> str:
        name = str(len(self._processes))
        self._pipes[name], theirs = self._spawn.Pipe()
        self._processes[name] = self._spawn.Process(target=serve, args=(self._parcel, theirs), daemon=True)
        self._processes[name].start()
        self._asked.add(name)
        return name

    def begin(self, worker: str, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        self._call(worker, "begin", plan, items, last)
        self._ask(worker)

    def feed(self, worker: str, items: list[Input], last: bool) -> None:
        self._pipes[worker].send(("feed", (items, last)))

    def messages(self, patience: float) -> Iterable[Message]:
        names = {self._pipes[name]: name for name in self._asked}
        for pipe in wait(list(names), patience):
            assert isinstance(pipe, Connection)
            name = names[pipe]
            answer: Report | None = pipe.recv()
            self._asked.discard(name)
            yield Message(name, answer)
            if answer is not None and answer.ended is None:
                if answer.hungry:
                    pipe.recv()  # of the inputs that were sent for it
                self._ask(name)

    def dismiss(self, worker: str) -> None:
        self._processes[worker].kill()
        self._asked.discard(worker)

    def wanted(self) -> int:
        return self._workers

    def end(self) -> None:
        for worker in self._processes:
            self.dismiss(worker)
            self._processes[worker].join()

    def _call(self, worker: str, name: str, *words: Any) -> None:
        self._pipes[worker].send((name, words))
        self._pipes[worker].recv()

    def _ask(self, worker: str) -> None:
        self._pipes[worker].send(("report", (1.0,)))
        self._asked.add(worker)


@dataclass(frozen=True)
class Processes(Engine):
    """The engine of such a crew."""

    workers: int = 2
    name = "processes"

    def records(self, work: Work) -> Iterator[Record]:
        inputs = iter(work.inputs)
        first = next(inputs)
        crew = ProcessCrew(Parcel.of(work, first), self.workers)
        try:
            yield from Manager(crew, chain([first], inputs), work.execution, 600.0).records()
        finally:
            crew.end()

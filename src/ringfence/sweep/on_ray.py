"""Workers of a sweep on the machines of a Ray cluster; the work folder lies on a file system that all of them share."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from ringfence.engines.ray import Ray, reason_of
from ringfence.sweep.worker import GRACE, Worker

if TYPE_CHECKING:
    from ray import ObjectRef
    from ray.actor import ActorHandle

DEATHS = 3
"""Times that a job is begun again because the machine under it died: all commands go on where they stopped."""


@final
class RayWorker:
    """A worker as Schedule knows it, inside an actor with its share of a GPU."""

    def __init__(self, ray: Any, engine: Ray, program: Sequence[str]) -> None:
        self._ray, self._engine, self._program = ray, engine, list(program)
        self._actor: ActorHandle[Any] | None = None
        self._deaths = 0

    def begin(self, commands: Sequence[Sequence[str]], folder: Path, log: Path) -> None:
        """Run commands at the same time, wherever there is room."""
        self._told, self._deaths = (commands, folder.resolve(), log), 0
        self._start()

    def code(self) -> int | None:
        """The exit code; a job whose machine died is begun again elsewhere."""
        there, _ = self._ray.wait([self._asked], timeout=0)
        if not there:
            return None
        try:
            return int(self._ray.get(self._asked))
        except self._ray.exceptions.RayError as error:
            self._actor = None
            self._deaths += 1
            log = self._told[1] / self._told[2]
            with log.open("a", encoding="utf-8") as file:
                file.write(f"error: the worker of this job is gone: {reason_of(error)}\n")
            if self._deaths > DEATHS:
                return 1
        self._start()
        return None

    def ask_to_end(self) -> None:
        """As by Ctrl-C: what was finished is kept."""
        if self._actor is not None:
            self._actor.ask_to_end.remote()

    def end(self) -> int:
        """Wait for its end; the actor and what it holds go back to the cluster."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(self._ray.exceptions.RayError):
                self._ray.get(actor.end.remote(), timeout=GRACE + 10)
            self._ray.kill(actor)
        return 0

    def _start(self) -> None:
        if self._actor is None:
            actor = self._ray.remote(max_concurrency=3, max_restarts=0, **self._engine.options)(_Runner)
            self._actor = actor.remote(self._program)
        self._asked: ObjectRef[Any] = self._actor.run.remote(*self._told)


class _Runner:
    """A process of its own beside the actor, on its machine: it sees the devices that the actor was given."""

    def __init__(self, program: Sequence[str]) -> None:
        self._worker = Worker([sys.executable, *program[1:]])  # Python may lie elsewhere here

    def run(self, commands: Sequence[Sequence[str]], folder: Path, log: Path) -> int:
        self._worker.begin(commands, folder, log)
        while (code := self._worker.code()) is None:
            time.sleep(0.1)
        return code

    def ask_to_end(self) -> None:
        self._worker.ask_to_end()

    def end(self) -> int:
        return self._worker.end()

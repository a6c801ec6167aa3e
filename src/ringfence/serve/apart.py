"""Apart: models work in a process of their own, requests are read in another.

One interpreter runs one thread at a time. Whoever gives work to a device asks for its turn again after every call, and
would wait for requests that are being read: batches came late, and a fast device stood still half of the time.

The models' process has the secret that noise is drawn by; tokens and the key that signs stay where requests are read.
Moments are told by time.monotonic(), which all processes of a machine share.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, final

from torch import Tensor

from ringfence.errors import RingfenceError
from ringfence.noise.exact import onto_lattice
from ringfence.record import Record
from ringfence.serve.asked import Asked, Bounds, Timing
from ringfence.serve.channel import SILENCE, Channel
from ringfence.serve.host import Make, host_models
from ringfence.serve.limits import Gone
from ringfence.serve.model import Load, Model, Terms
from ringfence.signals import SIGNALS

LEAVE = 10.0
"""Seconds that the models' process has to end once it is told to."""


class Lost(RingfenceError):
    """The process of the models ended, and nobody had told it to."""

    def __init__(self, how: object) -> None:
        remedy = "What it wrote before stands above; -9 is how a system ends who takes too much memory. Start it anew."
        super().__init__(
            "models", "must work in their process while they are served", f"an end with code {how}", remedy
        )


@final
class RemoteModel(Model):
    """A model of the other process, the one at this place there; what passes here it may refuse as well."""

    def __init__(self, terms: Terms, place: int, process: ModelsProcess) -> None:
        super().__init__(terms)
        self._place, self._process = place, process
        self._load, self.closed = Load(), threading.Event()

    @property
    def load(self) -> Load:
        """What it had to do when it last told anything."""
        return self._load

    def tell(self, load: Load, broken: str | None) -> None:
        """How it is by now."""
        self._load, self.broken = load, broken

    def _identify(self, x: Tensor) -> int:
        """A number; which draws it gets is decided where the secret is."""
        if self.terms.lattice is not None:
            onto_lattice("input", x, self.terms.lattice)
        return next(self._process.numbers)

    def _enqueue(self, asked: Asked) -> None:
        asked.leaving.append(partial(self._process.channel.put, "leave", asked.id))
        how = (asked.watch is not None, asked.background, asked.timing.came, self.pace.reply.seconds)
        self._process.send(asked, self._place, asked.x.numpy(), asked.question, *how)

    def close(self) -> None:
        """As of every model, there; a process that hangs is not waited for any longer."""
        self._process.channel.put("close", self._place)
        self.closed.wait(self.limits.drain)


@final
class ModelsProcess:
    """The models' process as the one that reads requests sees it: who waits for which answer.

    Requests are sent by the thread of the loop and by that of jobs; all that is heard, and the end, by the channel's.
    None of them takes a lock: a request is kept before it is sent, and whoever keeps one looks afterwards whether the
    end has come.
    """

    def __init__(self, connection: Connection) -> None:
        self.numbers = count()
        self.models: list[RemoteModel] = []
        self.lost: Future[None] = Future()
        self._ready: Future[list[Terms]] = Future()
        self._leaving = self._ended = False
        self._asked: dict[int, Asked] = {}
        handlers: dict[str, Callable[..., None]] = {
            "ready": self._ready.set_result,
            "failed": self._ready.set_exception,
            "news": self._news,
            "bounds": self._bounds,
            "answer": self._answer,
            "closed": lambda place: self.models[place].closed.set(),
        }
        self.channel = Channel(connection, handlers, self._end, silent=self._silent)

    def open(self) -> None:
        """Wait until the models are there."""
        self.models = [RemoteModel(terms, place, self) for place, terms in enumerate(self._ready.result())]
        if self._ended:  # meanwhile: nobody may have told them
            raise Lost("unknown")

    def when_lost(self, heard: Callable[[], None]) -> None:
        """Called once the process has ended by itself, also where it has already."""
        self.lost.add_done_callback(lambda _: heard())

    def send(self, asked: Asked, place: int, *question: Any) -> None:
        """Ask the model at that place, and keep who asked."""
        self._asked[asked.id] = asked
        self.channel.put("ask", place, asked.id, *question)
        if self._ended:  # by now: whoever gave up all that wait may not have seen this one
            self._give_up()

    def leave(self) -> None:
        """Let the process end."""
        self._leaving = True
        self.channel.put("end")

    def _news(self, told: list[tuple[Load, str | None]]) -> None:
        for model, (load, broken) in zip(self.models, told, strict=False):  # none before they are opened
            model.tell(load, broken)

    def _silent(self) -> None:
        """The process is there and tells nothing: no answer is to be expected until it does."""
        for model in self.models:
            model.broken = f"a process that has told nothing for {SILENCE:g} s"

    def _bounds(self, number: int, bounds: Bounds) -> None:
        asked = self._asked.get(number)
        if asked is not None and asked.watch is not None:
            asked.watch(bounds)

    def _answer(self, number: int, timing: Timing | None, answer: Record | Exception) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if timing is not None:
            vars(asked.timing).update(vars(timing))
        if isinstance(answer, Record):
            asked.answer.set_result(answer)
        else:
            asked.answer.set_exception(answer)

    def _end(self) -> None:
        """The process is there no more: nobody may wait for it."""
        if self._ended:
            return
        self._ended = True
        for model in self.models:
            model.broken = "a process that has ended"
            model.closed.set()
        if not self._leaving:
            self.lost.set_result(None)
        if not self._ready.done():
            self._ready.set_exception(Lost("unknown"))
        self._give_up()

    def _give_up(self) -> None:
        while self._asked:
            with suppress(KeyError):  # its answer came, or another thread gave it up
                _, asked = self._asked.popitem()
                asked.answer.set_exception(Gone("needs its model's process, which has ended", "no answer"))


@contextmanager
def in_own_process(make: Make) -> Iterator[ModelsProcess]:
    """Models that another process makes and that work there, until the block ends; so does that process.

    make: something that pickle knows. Where the process ends by itself, leaving the block tells so.
    """
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    here, there = spawn.Pipe()
    process = spawn.Process(target=host_models, args=(there, make), name="models")
    resource_tracker.ensure_running()  # before, because it lets the signals through once it has begun
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # it begins so, and ends when it is told to
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    models = ModelsProcess(here)
    try:
        there.close()  # the other process has its own, and its end is heard only where nobody else has one
        with suppress(Lost):  # told below, with how it ended
            models.open()
            yield models
    finally:
        models.leave()
        process.join(LEAVE)
        if process.is_alive():
            process.kill()
            process.join()
    if models.lost.done():
        raise Lost(process.exitcode)

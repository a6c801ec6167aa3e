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
import time
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
from ringfence.serve.limits import Gone, Question
from ringfence.serve.line import SILENCE, Line
from ringfence.serve.model import Load, Model, Terms
from ringfence.serve.sharing import Asked, Bounds, Course
from ringfence.serve.workshop import Make, work
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
class Distant(Model):
    """A model of the other process, the one at this place there."""

    def __init__(self, terms: Terms, place: int, office: Office) -> None:
        super().__init__(terms)
        self._place, self._office = place, office
        self._load, self.closed = Load(), threading.Event()

    @property
    def load(self) -> Load:
        """What it had to do when it last told anything."""
        return self._load

    def tell(self, load: Load, broken: str | None) -> None:
        """How it is by now."""
        self._load, self.broken = load, broken

    def ask(
        self,
        x: Tensor,
        question: Question,
        *,
        watch: Callable[[Bounds], None] | None = None,
        background: bool = False,
        came: float | None = None,
    ) -> Asked:
        """Refuse what can be refused here, and send the rest to the model, which may refuse it as well."""
        came = time.monotonic() if came is None else came
        if not background:
            self.check_room(question, came)
        self.check_shape(x)
        if self.terms.lattice is not None:
            onto_lattice("input", x, self.terms.lattice)
        number = next(self._office.numbers)
        asked = Asked(
            number,
            x,
            None,
            "request",
            True,
            question=question,
            test=self.test(question),
            background=background,
            watch=watch,
            leaving=partial(self._office.line.put, "leave", number),
        )
        asked.course.came = came
        asked.answer.set_running_or_notify_cancel()
        how = (watch is not None, background, came, self.pace.reply.seconds)
        self._office.send(asked, "ask", self._place, number, x.numpy(), question, *how)
        return asked

    def close(self) -> None:
        """As the model does, there; one that hangs is not waited for any longer."""
        self._office.line.put("close", self._place)
        self.closed.wait(self.limits.drain)


@final
class Office:
    """The side of the requests: who waits for which answer."""

    def __init__(self, connection: Connection) -> None:
        self.numbers = count()
        self.models: list[Distant] = []
        self.ready: Future[list[Terms]] = Future()
        self.lost = False
        self._when_lost: Callable[[], None] = lambda: None
        self._leaving = self._ended = False
        self._asked: dict[int, Asked] = {}
        self.line = Line(connection, self._hear, self._end, silent=self._silent)

    def open(self) -> None:
        """Wait until the models are there."""
        self.models = [Distant(terms, place, self) for place, terms in enumerate(self.ready.result())]
        if self._ended:  # meanwhile: nobody may have told them
            raise Lost("unknown")

    def when_lost(self, heard: Callable[[], None]) -> None:
        """Called once the other process has ended by itself, also where it has already."""
        self._when_lost = heard
        if self.lost:
            heard()

    def send(self, asked: Asked, *item: Any) -> None:
        """Ask, and keep who asked."""
        self._asked[asked.id] = asked
        self.line.put(*item)
        if self._ended:  # by now: whoever gave up all that wait may not have seen this one
            self._give_up()

    def leave(self) -> None:
        """Let the other process end."""
        self._leaving = True
        self.line.put("end")

    def _hear(self, items: list[Any]) -> None:
        for name, *parts in items:
            getattr(self, f"_on_{name}")(*parts)

    def _on_ready(self, told: list[Terms]) -> None:
        self.ready.set_result(told)

    def _on_failed(self, error: RingfenceError) -> None:
        self.ready.set_exception(error)

    def _on_news(self, told: list[tuple[Load, str | None]]) -> None:
        for model, (load, broken) in zip(self.models, told, strict=False):  # none before they are opened
            model.tell(load, broken)

    def _silent(self) -> None:
        """The other process is there and tells nothing: no answer is to be expected until it does."""
        for model in self.models:
            model.broken = f"a process that has told nothing for {SILENCE:g} s"

    def _on_bounds(self, number: int, bounds: Bounds) -> None:
        asked = self._asked.get(number)
        if asked is not None and asked.watch is not None:
            asked.watch(bounds)

    def _on_answer(self, number: int, course: Course | None, answer: Record | Exception) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        if course is not None:
            vars(asked.course).update(vars(course))
        if isinstance(answer, Record):
            asked.answer.set_result(answer)
        else:
            asked.answer.set_exception(answer)

    def _on_closed(self, place: int) -> None:
        self.models[place].closed.set()

    def _end(self) -> None:
        """The other process is there no more: nobody may wait for it."""
        self._ended, self.lost = True, not self._leaving
        for model in self.models:
            model.broken = "a process that has ended"
            model.closed.set()
        if not self.ready.done():
            self.ready.set_exception(Lost("unknown"))
        self._give_up()
        if self.lost:
            self._when_lost()

    def _give_up(self) -> None:
        while self._asked:
            with suppress(KeyError):
                _, asked = self._asked.popitem()
                asked.answer.set_exception(Gone("needs its model's process, which has ended", "no answer"))


@contextmanager
def in_own_process(make: Make) -> Iterator[Office]:
    """Models that another process makes and that work there, until the block ends; so does that process.

    make: something that pickle knows. Where the process ends by itself, leaving the block tells so.
    """
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    here, there = spawn.Pipe()
    process = spawn.Process(target=work, args=(there, make), name="models")
    resource_tracker.ensure_running()  # before, because it lets the signals through once it has begun
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # it begins so, and ends when it is told to
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    office = Office(here)
    try:
        there.close()  # the other process has its own, and its end is heard only where nobody else has one
        with suppress(Lost):
            office.open()
            yield office
    finally:
        office.leave()
        process.join(LEAVE)
        if process.is_alive():
            process.kill()
            process.join()
    if office.lost:
        raise Lost(process.exitcode)

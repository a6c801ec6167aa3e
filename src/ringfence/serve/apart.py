"""Apart: models work in a process of their own, requests are read in another.

One interpreter runs one thread at a time. Whoever gives work to a device asks for its turn again after every call, and
would wait for requests that are being read: batches came late, and a fast device stood still half of the time.

The models' process has the secret that noise is drawn by; tokens and the key that signs stay where requests are read.
Moments are told by time.monotonic(), which all processes of a machine share.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, final

import torch
from torch import Tensor

from ringfence.errors import RingfenceError
from ringfence.noise.exact import onto_lattice
from ringfence.record import Record
from ringfence.serve.limits import Gone, Question
from ringfence.serve.model import Load, Model, Terms
from ringfence.serve.service import own_process
from ringfence.serve.sharing import Asked, Bounds, Course
from ringfence.signals import SIGNALS

BEAT = 1.0
"""Seconds after which the load of models is told, where nothing else is."""
LEAVE = 10.0
"""Seconds that the models' process has to end once it is told to."""
Make = Callable[[], Sequence[Model]]


class Lost(RingfenceError):
    """The process of the models ended, and nobody had told it to."""

    def __init__(self, how: object) -> None:
        remedy = "What it wrote before stands above; -9 is how a system ends who takes too much memory. Start it anew."
        super().__init__(
            "models", "must work in their process while they are served", f"an end with code {how}", remedy
        )


@final
class Line:
    """To another process: what gathers while a message is sent goes in the next one, all together.

    hear: called with the items of a message, in a thread of its own; ended: after the last one. news: told with every
    message, and now and then without one.
    """

    def __init__(
        self,
        connection: Connection,
        hear: Callable[[list[Any]], None],
        ended: Callable[[], None],
        news: Callable[[], Any] | None = None,
    ) -> None:
        self._connection, self._hear, self._ended, self._news = connection, hear, ended, news
        self._out: SimpleQueue[Any] = SimpleQueue()
        for work in (self._send, self._read):
            threading.Thread(target=work, daemon=True, name=f"line{work.__name__}").start()

    def put(self, *item: Any) -> None:
        """Tell it soon; from any thread, which does not wait."""
        self._out.put(item)

    def _send(self) -> None:
        while True:
            items = []
            with suppress(Empty):
                items.append(self._out.get(timeout=None if self._news is None else BEAT))
                while True:
                    items.append(self._out.get_nowait())
            if self._news is not None:
                items.append(self._news())
            try:
                self._connection.send_bytes(pickle.dumps(items, 5))
            except OSError:
                return None  # nobody is there any more, as the other thread finds out too
            except Exception:  # an error of ours, as below
                traceback.print_exc()
                return self._ended()

    def _read(self) -> None:
        try:
            while True:
                self._hear(pickle.loads(self._connection.recv_bytes()))
        except (EOFError, OSError):
            pass
        except Exception:  # an error of ours: better an end than requests that nobody hears
            traceback.print_exc()
        self._ended()


# Where requests are read


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
        """As the model does, there."""
        self._office.line.put("close", self._place)
        self.closed.wait()


@final
class Office:
    """The side of the requests: who waits for which answer."""

    def __init__(self, connection: Connection) -> None:
        self.numbers = count()
        self.models: list[Distant] = []
        self.ready: Future[list[Terms]] = Future()
        self.lost = False
        self._on_lost: Callable[[], None] = lambda: None
        self._leaving = self._ended = False
        self._asked: dict[int, Asked] = {}
        self.line = Line(connection, self._hear, self._end)

    def open(self) -> None:
        """Wait until the models are there."""
        self.models = [Distant(terms, place, self) for place, terms in enumerate(self.ready.result())]

    def when_lost(self, heard: Callable[[], None]) -> None:
        """Called once the other process has ended by itself, also where it has already."""
        self._on_lost = heard
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
            self._on_lost()

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


# Where models work


def work(connection: Connection, make: Make) -> None:
    """The other process, from beginning to end."""
    for number in SIGNALS:  # which a terminal sends to all: requests end first, and the other process tells when
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    workshop = Workshop(connection)
    try:
        workshop.open(make())
        own_process()
    except RingfenceError as error:
        workshop.line.put("failed", error)
    threading.Event().wait()


def _unforeseen() -> Exception:
    """An error of ours, which is told here; another process may not have what it is made of."""
    traceback.print_exc()
    return RuntimeError("the models' process met an error")


@final
class Workshop:
    """The side of the models: one thread hears requests, and another tells what became of them."""

    def __init__(self, connection: Connection) -> None:
        self._models: Sequence[Model] = ()
        self._asked: dict[int, Asked] = {}
        self.line = Line(connection, self._hear, self._end, self._news)

    def open(self, models: Sequence[Model]) -> None:
        """Answer from now on."""
        self._models = models
        self.line.put("ready", [one.terms for one in models])

    def _news(self) -> Any:
        return "news", [(one.load, one.broken) for one in self._models]

    def _hear(self, items: list[Any]) -> None:
        for name, *parts in items:
            getattr(self, f"_on_{name}")(*parts)

    def _on_ask(
        self,
        place: int,
        number: int,
        x: Any,
        question: Question,
        watched: bool,
        background: bool,
        came: float,
        reply: float,
    ) -> None:
        model, watch = self._models[place], partial(self.line.put, "bounds", number) if watched else None
        model.pace.reply.saw(reply)
        try:
            asked = model.ask(torch.from_numpy(x), question, watch=watch, background=background, came=came)
        except Exception as error:
            self.line.put("answer", number, None, error if isinstance(error, RingfenceError) else _unforeseen())
            return
        self._asked[number] = asked
        asked.answer.add_done_callback(partial(self._answered, number, asked))

    def _answered(self, number: int, asked: Asked, answer: Future[Record]) -> None:
        self._asked.pop(number, None)
        self.line.put("answer", number, asked.course, answer.exception() or answer.result())

    def _on_leave(self, number: int) -> None:
        asked = self._asked.get(number)
        if asked is not None:
            asked.leave()

    def _on_close(self, place: int) -> None:
        def close() -> None:
            self._models[place].close()
            self.line.put("closed", place)

        threading.Thread(target=close, daemon=True).start()

    def _on_end(self) -> None:
        os._exit(0)

    def _end(self) -> None:
        """Whoever reads requests is there no more, and has not said so."""
        print("the process that reads requests has ended, and so do its models", file=sys.stderr, flush=True)
        os._exit(1)

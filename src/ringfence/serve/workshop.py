"""Workshop: the process in which models work, where another one reads requests (apart)."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, final

import torch

from ringfence.errors import RingfenceError
from ringfence.record import Record
from ringfence.serve.limits import Question
from ringfence.serve.line import Line
from ringfence.serve.model import Model
from ringfence.serve.service import own_process
from ringfence.serve.sharing import Asked
from ringfence.signals import SIGNALS

Make = Callable[[], Sequence[Model]]
log = logging.getLogger("ringfence.serve")


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
    log.exception("%s", json.dumps({"error": "internal"}))
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
        # Not printed: where nobody reads that any more either, it would raise, and the device would never be free.
        log.error("%s", json.dumps({"error": "the process that reads requests has ended, and so do its models"}))
        os._exit(1)

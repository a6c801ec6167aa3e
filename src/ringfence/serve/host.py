"""Host: the process in which models work, where another one reads requests (apart.py)."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, final

import torch

from ringfence.errors import RingfenceError
from ringfence.record import Record
from ringfence.serve.asked import Asked
from ringfence.serve.channel import Channel
from ringfence.serve.limits import Question
from ringfence.serve.model import Model
from ringfence.signals import SIGNALS

Make = Callable[[], Sequence[Model]]
log = logging.getLogger("ringfence.serve")


def tune_process() -> None:
    """Called once everything is loaded, in a process that does nothing but serve.

    The collector of garbage need not look again through what stays for ever. And threads take turns more often than
    Python has them do: those of models and of the loop give up the interpreter at every call of torch or of the
    system, and batches come late where they do not have it back soon.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    sys.setswitchinterval(0.0001)


def host_models(connection: Connection, make: Make) -> None:
    """All that the models' process does, from beginning to end."""
    for number in SIGNALS:  # which a terminal sends to all: requests end first, and the other process tells when
        signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    host = Host(connection)
    try:
        host.open(make())
        tune_process()
    except RingfenceError as error:
        host.channel.put("failed", error)
    threading.Event().wait()


def _unforeseen() -> Exception:
    """An error of ours, which is told here; another process may not have what it is made of."""
    log.exception(json.dumps({"error": "internal"}))
    return RuntimeError("the models' process met an error")


@final
class Host:
    """The models' side of the channel: one thread of it hears requests, the other tells what became of them."""

    def __init__(self, connection: Connection) -> None:
        self._models: Sequence[Model] = ()
        self._asked: dict[int, Asked] = {}
        handlers: dict[str, Callable[..., None]] = {
            "ask": self._ask,
            "leave": self._leave,
            "close": self._close,
            "end": partial(os._exit, 0),
        }
        self.channel = Channel(connection, handlers, self._end, self._news)

    def open(self, models: Sequence[Model]) -> None:
        """Answer from now on."""
        self._models = models
        self.channel.put("ready", [one.terms for one in models])

    def _news(self) -> Any:
        return "news", [(one.load, one.broken) for one in self._models]

    def _ask(
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
        model, watch = self._models[place], partial(self.channel.put, "bounds", number) if watched else None
        model.pace.reply.saw(reply)
        try:
            asked = model.ask(torch.from_numpy(x), question, watch=watch, background=background, came=came)
        except Exception as error:
            self.channel.put("answer", number, None, error if isinstance(error, RingfenceError) else _unforeseen())
            return
        self._asked[number] = asked
        asked.answer.add_done_callback(partial(self._answered, number, asked))

    def _answered(self, number: int, asked: Asked, answer: Future[Record]) -> None:
        self._asked.pop(number, None)
        self.channel.put("answer", number, asked.timing, answer.exception() or answer.result())

    def _leave(self, number: int) -> None:
        asked = self._asked.get(number)
        if asked is not None:
            asked.leave()

    def _close(self, place: int) -> None:
        def close() -> None:
            self._models[place].close()
            self.channel.put("closed", place)

        threading.Thread(target=close, daemon=True).start()

    def _end(self) -> None:
        """Whoever reads requests is there no more, and has not said so."""
        # Not printed: where nobody reads that any more either, it would raise, and the device would never be free.
        log.error(json.dumps({"error": "the process that reads requests has ended, and so do its models"}))
        os._exit(1)

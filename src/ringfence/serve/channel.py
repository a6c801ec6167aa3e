"""Channel: what one process tells another, many things in a message."""

from __future__ import annotations

import json
import logging
import os
import pickle
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, final

BEAT = 1.0
"""Seconds after which the load of models is told, where nothing else is."""
SILENCE = 10 * BEAT
"""Seconds without a word after which whoever should tell something hangs."""
log = logging.getLogger("ringfence.serve")
T = TypeVar("T")


def gathered(queue: SimpleQueue[T], seconds: float | None = None) -> list[T]:
    """All that a queue holds, as soon as it holds something; an empty list where nothing comes for so many seconds."""
    items: list[T] = []
    with suppress(Empty):
        items.append(queue.get(timeout=seconds))
        while True:
            items.append(queue.get_nowait())
    return items


@final
class Channel:
    """To another process: what gathers while a message is sent goes in the next one, all together.

    handlers: called by the name of an item with its parts, in a thread of their own; ended: after the last message;
    silent: where none came for long. news: told with every message, and now and then without one.
    """

    def __init__(
        self,
        connection: Connection,
        handlers: Mapping[str, Callable[..., None]],
        ended: Callable[[], None],
        news: Callable[[], Any] | None = None,
        silent: Callable[[], None] | None = None,
    ) -> None:
        self._connection, self._handlers = connection, handlers
        self._ended, self._news, self._silent = ended, news, silent
        self._out: SimpleQueue[Any] = SimpleQueue()
        os.register_at_fork(after_in_child=connection.close)  # or the other end would not hear of the end of this one
        for work in (self._send, self._read):
            threading.Thread(target=work, daemon=True, name=f"channel{work.__name__}").start()

    def put(self, name: str, *parts: Any) -> None:
        """Tell it soon; from any thread, which does not wait."""
        self._out.put((name, *parts))

    def _send(self) -> None:
        while True:
            items = gathered(self._out, None if self._news is None else BEAT)
            if self._news is not None:
                items.insert(0, self._news())  # before answers: whoever hears that there is none may ask why
            try:
                self._connection.send_bytes(pickle.dumps(items, 5))
            except OSError:
                return None  # nobody is there any more, as the other thread finds out too
            except Exception:  # an error of ours, as below
                log.exception(json.dumps({"error": "internal"}))
                return self._ended()

    def _read(self) -> None:
        try:
            while True:
                if self._silent is not None and not self._connection.poll(SILENCE):
                    self._silent()
                for name, *parts in pickle.loads(self._connection.recv_bytes()):
                    self._handlers[name](*parts)
        except (EOFError, OSError):
            pass
        except Exception:  # an error of ours: better an end than requests that nobody hears
            log.exception(json.dumps({"error": "internal"}))
        self._ended()

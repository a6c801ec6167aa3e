"""Bell: threads that answer wake a loop that waits, once for all that was answered since it last woke."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, final
from weakref import WeakKeyDictionary


@final
class Bell:
    """Of one loop. Each waking is a system call of the thread that answers, which may lose its turn by it."""

    def __init__(self) -> None:
        self._rung: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def ring(self, loop: asyncio.AbstractEventLoop, waiting: asyncio.Future[None]) -> None:
        """Have this future of the loop done soon; from any thread."""
        self._rung.append(waiting)
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # after the end of the loop nobody listens
                loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False  # before looking: who rings from here on wakes again
        while self._rung:
            if not (waiting := self._rung.popleft()).done():
                waiting.set_result(None)


_BELLS: WeakKeyDictionary[asyncio.AbstractEventLoop, Bell] = WeakKeyDictionary()


def heard(answer: Future[Any]) -> asyncio.Future[None]:
    """A future of the running loop, done soon after the answer is."""
    loop = asyncio.get_running_loop()
    bell, waiting = _BELLS.setdefault(loop, Bell()), loop.create_future()
    answer.add_done_callback(lambda _: bell.ring(loop, waiting))
    return waiting

"""Wakeup: what threads tell a loop, which wakes once for all that was told since it last woke."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, final
from weakref import WeakKeyDictionary


@final
class _Wakeup:
    """Of one loop. Each waking is a system call of the thread that tells, which may lose its turn by it."""

    def __init__(self) -> None:
        self._told: deque[tuple[asyncio.Queue[Any], Any]] = deque()
        self._waking = False

    def tell(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Any], item: Any) -> None:
        """Have the loop put an item into its queue soon; from any thread."""
        self._told.append((queue, item))
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # after the end of the loop nobody listens
                loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._waking = False  # before looking: who tells something from here on wakes again
        while self._told:
            queue, item = self._told.popleft()
            queue.put_nowait(item)


_WAKEUPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Wakeup] = WeakKeyDictionary()


def from_threads() -> tuple[asyncio.Queue[Any], Callable[[Any], None]]:
    """A queue of the running loop, and what any thread puts something into it by."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()
    wakeup = _WAKEUPS.setdefault(loop, _Wakeup())
    return queue, lambda item: wakeup.tell(loop, queue, item)

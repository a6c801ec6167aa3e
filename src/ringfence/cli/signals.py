"""Ctrl-C and SIGTERM: the first one ends a command cleanly, the second one at once, neither with a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM: what batch systems and containers send before they kill. Whatever cleans up after Ctrl-C does so now."""


@contextmanager
def stopped_cleanly() -> Iterator[None]:
    """Hear both signals inside the block; a process they ended says so by its exit code, 130 or 143."""
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1:
            _leave(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]  # ignored under nohup, for example
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    except SystemExit:
        if heard:
            raise SystemExit(128 + heard[0]) from None
        raise
    finally:
        for number in ours:
            signal.signal(number, before[number])


def _leave(number: int) -> None:
    """Parts and checkpoints are written whole or not at all, so that this is safe at any moment."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides it
    os.write(2, f"{cursor}\nstopped at once; what was written before is safe.\n".encode())
    os._exit(128 + number)

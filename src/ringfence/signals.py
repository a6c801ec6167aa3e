"""Ctrl-C and SIGTERM: the first one ends a command cleanly, the second one at once, neither with a traceback.

Nothing heavy is imported here: the program begins with this file, so that both are heard from the first moment on.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORTING = "<frozen importlib._bootstrap>"


class Terminated(KeyboardInterrupt):
    """SIGTERM: what batch systems and containers send before they kill. Whatever cleans up after Ctrl-C does so now."""


def leave_at_once_when_stopped() -> None:
    """For the time before a command begins, when there is nothing to finish."""
    for number in _ours():
        signal.signal(number, lambda number, frame: _leave(number))


@contextmanager
def stopped_cleanly() -> Iterator[None]:
    """Hear both signals inside the block; a process they ended says so by its exit code, 130 or 143."""
    heard: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > 1 or _importing(frame):
            _leave(number)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def swallowed(told: sys.UnraisableHookArgs) -> None:
        """Python ignores what is raised in destructors and callbacks: the command would run on as if not told."""
        if heard and issubclass(told.exc_type, KeyboardInterrupt):
            _leave(heard[0])
        hook_before(told)

    before, hook_before = {number: signal.getsignal(number) for number in _ours()}, sys.unraisablehook
    for number in before:
        signal.signal(number, stop)
    sys.unraisablehook = swallowed
    try:
        yield
    except BaseException:  # after a signal nothing else is the reason, whatever libraries made of it
        if heard:
            raise SystemExit(128 + heard[0]) from None
        raise
    else:
        if heard:
            raise SystemExit(128 + heard[0])
    finally:
        sys.unraisablehook = hook_before
        for number, handler in before.items():
            signal.signal(number, handler)


def _ours() -> list[signal.Signals]:
    """Those that are not ignored, as they are under nohup, for example."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: half of one, or a library that gives up on it, would hide the signal."""
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            return True
        frame = frame.f_back
    return False


def leave(code: int) -> None:
    """End the program once threads have ended, what was to be done at its end is done, and all that was printed is out.

    Taking down what libraries have built would take Python up to a second. Comes back where it cannot.
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # another Python, or nobody reads what is printed
        return
    os._exit(code)


def _leave(number: int) -> None:
    """Parts and checkpoints are written whole or not at all, so that this is safe at any moment."""
    cursor = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""  # a progress bar hides it
    try:
        os.write(2, f"{cursor}\nstopped at once; what was written before is safe.\n".encode())
    finally:
        os._exit(128 + number)

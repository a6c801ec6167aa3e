"""What is set up first in every process, this one and those that it starts: streams, folder, threads, memory, signals.

Nothing heavy is imported here.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

POLICY = "OMP_WAIT_POLICY"
"""Environment variable that says how threads of OpenMP wait for each other; libraries read it when they are loaded."""
_WAITING_VARIABLES = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
_MALLOC = {-1: 2**30, -3: 2**25}
"""Bytes by numbers of glibc's malloc.h: M_TRIM_THRESHOLD, and M_MMAP_THRESHOLD, which may not be larger."""
_MALLOC_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def open_closed_streams() -> None:
    """Open /dev/null in the place of standard streams that were closed (``2>&-``): the next file that is opened would
    get their number, and libraries would write their messages into it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: those below are open by now
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def print_any_text() -> None:
    """Write out (``\\xfc``) what the encoding of standard output does not have, as standard error does: names and
    signs would end the program, with the exit code that some commands have for a run that is not right."""
    if sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def refuse_lost_folder() -> None:
    """End where the folder that the program was called in is gone: nothing can be found from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        rule, remedy = "must exist; got one that was removed", "Change to another folder and run it again."
        sys.stderr.write(f"error: working folder: {rule}. {remedy}\n")
        raise SystemExit(2) from None


def sleep_while_waiting() -> None:
    """Have threads of OpenMP wait asleep, in this process and those that it starts, unless the user has said how.

    Else each waits for the others at full speed for milliseconds, behind every operation of a network. Where other
    programs use the cores too, it takes the core from the thread that it waits for: certifying took ten times as long.
    """
    if not any(name in os.environ for name in (POLICY, *_WAITING_VARIABLES)):
        os.environ[POLICY] = "PASSIVE"


def keep_freed_memory() -> None:
    """Have glibc keep up to a GiB that was freed for what comes next, unless the user has said how much.

    Else tensors of more than some hundred KB go back to the system after every operation, which clears their pages
    anew for the next one: up to half of the time that certifying or training a small network on a processor takes.
    """
    if any(name in os.environ for name in _MALLOC_VARIABLES):
        return
    import ctypes

    try:
        mallopt: Any = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # of other C libraries
        return
    for number, size in _MALLOC.items():
        mallopt(number, size)


def worker_environment() -> dict[str, str]:
    """Variables of every worker of a sweep."""
    # The search path may hold relative folders, and the worker runs elsewhere.
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    return {"RINGFENCE_ZOO": "zoo", "PYTHONPATH": path, "TERM": "dumb"}  # logs have no colours


def hear_interrupts() -> None:
    """A shell in the background lets its children ignore interrupts, and they inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

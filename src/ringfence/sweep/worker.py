"""A worker of a sweep, seen from both sides: the schedule that gives it work, and the program that does it.

The program reads a line for each piece of work, {"commands": [[word, ...], ...], "folder": DIR, "log": FILE in it}, and
answers each with a line that holds the exit code: libraries, device and compiler are loaded once for each of them. When
nobody speaks to it any more it stops what it is doing, as by Ctrl-C: so it ends when the sweep ends, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from ringfence.signals import stopped_cleanly

GRACE = 60.0
"""Seconds that an interrupted command may take to end."""


class Runs(Protocol):
    """A worker as the schedule sees it, wherever it is."""

    def begin(self, commands: Sequence[Sequence[str]], folder: Path, log: Path) -> None:
        """Run commands at the same time in a work folder; log, relative to it, takes what they print."""

    def code(self) -> int | None:
        """The exit code of what it runs, None while it runs."""

    def ask_to_end(self) -> None:
        """Speak to it no more."""

    def end(self) -> int:
        """Wait until it ends, and kill it if that takes too long."""


class Worker:
    """One such process; it is started by its first command, and anew after one that ended it.

    beside: how many of them work here. Each takes its share of the cores: threads of several that all count on every
    core wait for each other, and spin meanwhile.
    """

    def __init__(self, program: Sequence[str], beside: int = 1) -> None:
        self._program, self._beside = list(program), beside
        self._process: subprocess.Popen[str] | None = None

    def begin(self, commands: Sequence[Sequence[str]], folder: Path, log: Path) -> None:
        """Run commands at the same time in a work folder; log, relative to it, takes what they print."""
        if self._process is None:
            self._process = _started(self._program, folder, self._beside)
        assert self._process.stdin is not None
        told = {"commands": [list(words) for words in commands], "folder": str(folder.resolve()), "log": log.as_posix()}
        with contextlib.suppress(BrokenPipeError):  # it is gone; code() finds out
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()

    def code(self) -> int | None:
        """The exit code of what it runs, None while it runs."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], 0)[0]:
            return None
        if line := self._process.stdout.readline().strip():
            return int(line)
        return self.end() or 1  # nothing more will come: it is gone

    def ask_to_end(self) -> None:
        """Speak to it no more."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def end(self, seconds: float = GRACE) -> int:
        """Wait until it ends, and kill it if that takes too long; its exit code, 0 where there is none."""
        self.ask_to_end()
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        return code


def _started(program: Sequence[str], folder: Path, beside: int) -> subprocess.Popen[str]:
    # The search path may hold relative folders, and the worker runs elsewhere.
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    told = {"RINGFENCE_ZOO": "zoo", "PYTHONPATH": path, "TERM": "dumb"}  # logs have no colours
    share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // beside))} if beside > 1 else {}
    return subprocess.Popen(
        program,
        cwd=folder,
        env={**share, **os.environ, **told},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=_hear_interrupts,
        start_new_session=True,  # Ctrl-C goes to all of a terminal: the sweep tells its workers, once
    )


def _hear_interrupts() -> None:
    """A shell in the background lets its children ignore interrupts, and they inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def answer_work(run: Callable[[list[list[str]]], int], ends: Collection[int]) -> None:
    """Be the program: do pieces of work as they are told, until nobody speaks or a code ends it."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    work, busy = SimpleQueue[bytes | None](), threading.Event()
    with stopped_cleanly():
        threading.Thread(target=_listen, args=(work, busy), daemon=True).start()
        while (line := work.get()) is not None:
            busy.set()
            told = json.loads(line)
            os.chdir(told["folder"])
            log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            code = run(told["commands"])
            busy.clear()
            print(code, file=answers, flush=True)
            if code in ends:
                return


def _listen(work: SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Take in pieces of work; when nobody speaks any more, stop what is being done, as Ctrl-C would."""
    for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115  (a buffer's lock would outlive the program)
        work.put(line)
    work.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)

"""A worker of a sweep, seen from both sides: the schedule that gives it work, and the program that does it.

The program reads a line for each piece of work, {"commands": [[word, ...], ...], "folder": DIR, "log": FILE in it}, and
answers each with a line that holds the exit code, and END where it takes no more work: libraries, device and compiler
are loaded once for each of them. When nobody speaks to it any more it stops what it is doing, as by Ctrl-C: so it ends
when the sweep ends, however that ends.
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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from ringfence.beginning import hear_interrupts, worker_environment
from ringfence.signals import stopped_cleanly

END = "END"
"""What a worker says behind its last answer."""
GRACE = 60.0
"""Seconds that an interrupted command may take to end."""
LEAVING = 5.0
"""Seconds for one that has answered its last: what it made is written, and threads of a network may never end."""


class Runs(Protocol):
    """A worker as the schedule sees it, wherever it is."""

    def begin(self, commands: Sequence[Sequence[str]], folder: Path, log: Path) -> None:
        """Run commands at the same time in a work folder; log, relative to it, takes what they print."""

    def code(self) -> int | None:
        """The exit code of what it runs, None while it runs."""

    def ask_to_end(self) -> None:
        """Have it stop, as by Ctrl-C; nothing waits for that."""

    def end(self) -> int:
        """Wait until it ends, and kill it if that takes too long."""


class Process(Protocol):
    """The part of subprocess.Popen that is used here."""

    stdin: Any
    stdout: Any

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; subprocess.TimeoutExpired where that takes longer."""

    def kill(self) -> None:
        """End it at once."""


class Forks(Protocol):
    """A process that becomes a worker by forking, and has imported already what takes long."""

    def worker(self, folder: Path, environment: Mapping[str, str]) -> Process:
        """A worker that begins in this folder, with these variables too; OSError where it cannot be."""


class Worker:
    """One such process; it is started by its first command, and anew after one that ended it.

    beside: how many of them work here. Each takes its share of the cores: threads of several that all count on every
    core wait for each other, and spin meanwhile. stem: forks them, where there is one; else the program is started.
    """

    def __init__(self, program: Sequence[str], beside: int = 1, stem: Forks | None = None) -> None:
        self._program, self._beside, self._stem = list(program), beside, stem
        self._process: Process | None = None

    def begin(self, commands: Sequence[Sequence[str]], folder: Path, log: Path) -> None:
        """Run commands at the same time in a work folder; log, relative to it, takes what they print."""
        if self._process is None:
            self._process = self._started(folder)
        told = {"commands": [list(words) for words in commands], "folder": str(folder.resolve()), "log": log.as_posix()}
        with contextlib.suppress(BrokenPipeError):  # it is gone; code() finds out
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()

    def code(self) -> int | None:
        """The exit code of what it runs, None while it runs."""
        assert self._process is not None
        if not select.select([self._process.stdout], [], [], 0)[0]:
            return None
        if line := self._process.stdout.readline().split():
            if END in line:
                self.end(LEAVING)
            return int(line[0])
        return self.end() or 1  # nothing more will come: it is gone

    def ask_to_end(self) -> None:
        """Close its input: when that ends, it stops what it is doing."""
        if self._process is not None:
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
        process.stdout.close()
        return code

    def _started(self, folder: Path) -> Process:
        share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self._beside))}
        more = {**(share if self._beside > 1 and share.keys().isdisjoint(os.environ) else {}), **worker_environment()}
        if self._stem is not None:
            with contextlib.suppress(OSError):
                return self._stem.worker(folder, more)
        return subprocess.Popen(
            self._program,
            cwd=folder,
            env={**os.environ, **more},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=hear_interrupts,
            start_new_session=True,  # Ctrl-C goes to all of a terminal: the sweep tells its workers, once
        )


def answer_work(run: Callable[[list[list[str]]], int], ends: Collection[int], again: Callable[[], bool]) -> None:
    """Be the program: do one piece of work after the other, until the input ends, a piece ends with one of the codes in
    ``ends``, or ``again`` says that this process must do no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    work, busy = SimpleQueue[bytes | None](), threading.Event()
    with stopped_cleanly():
        threading.Thread(target=_listen, args=(work, busy), daemon=True).start()
        while (line := work.get()) is not None:
            told = json.loads(line)
            os.chdir(told["folder"])
            log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            with _searched(told["folder"]):
                code = run(told["commands"])
            busy.clear()
            last = not again()
            print(*([code, END] if last else [code]), file=answers, flush=True)
            if last or code in ends:
                return


@contextlib.contextmanager
def _searched(folder: str) -> Iterator[None]:
    """Have modules searched for in the folder of this piece of work alone, unless Python is to search none."""
    if os.environ.get("PYTHONSAFEPATH"):
        yield
        return
    before = list(sys.path)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path[:] = before


def _listen(work: SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Take in pieces of work; when nobody speaks any more, stop what is being done, as Ctrl-C would."""
    for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115  (a buffer's lock would outlive the program)
        busy.set()  # here, so that no end comes between a piece of work and the moment that it counts
        work.put(line)
    work.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)

"""Processes that run ``ringfence`` commands one after the other: libraries, device and compiler are loaded once each.

Started as a program it reads a command a line, {"words": [...], "output": FILE or null}, and answers each with a line
that holds the exit code; what commands print goes to the output file, or to standard error.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GRACE = 60
"""Seconds that an interrupted command may take to end."""


def started(words: Sequence[str], work: Path, **more: Any) -> subprocess.Popen[str]:
    """Python with these words in the work folder."""
    # The search path may hold relative folders, and the command runs elsewhere.
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    environment = {**os.environ, "RINGFENCE_ZOO": "zoo", "PYTHONPATH": path}
    command = [sys.executable, *words]
    # A shell in the background lets its children ignore interrupts; these are to be stopped by one.
    return subprocess.Popen(command, cwd=work, env=environment, text=True, preexec_fn=hear_interrupts, **more)


def hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end_of(process: subprocess.Popen[str], seconds: float) -> int:
    """The exit code; after so many seconds it is interrupted, as by Ctrl-C, and then killed if it does not end."""
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(timeout=GRACE) or 1
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait() or 1


class Worker:
    """One such process; it is started by its first command, and anew after one that ended it."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._process: subprocess.Popen[str] | None = None

    def begin(self, words: Sequence[str], output: Path | None = None) -> None:
        """Run a command; output, relative to the work folder, takes what it prints."""
        if self._process is None:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._process = started([str(Path(__file__).resolve())], self._work, **pipes)
        assert self._process.stdin is not None
        told = {"words": list(words), "output": None if output is None else str(output)}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()

    def code(self) -> int | None:
        """The exit code of the command, None while it runs."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], 0)[0]:
            return None
        if line := self._process.stdout.readline():
            return int(line)
        return self.end(GRACE) or 1  # nothing more will come: it is gone

    def end(self, seconds: float = 0.0) -> int:
        """End the process, and with it what it runs; its exit code, 0 where there is none."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        code = end_of(process, seconds)
        process.stdout.close()
        return code


def run(words: list[str], output: str | None) -> int:
    """A command in this process; its exit code."""
    from ringfence.cli import app

    if output is not None:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if output is not None:
            file = stack.enter_context(Path(output).open("w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(file))
        try:
            return int(app(words, standalone_mode=False) or 0)
        finally:
            if (compiler := sys.modules.get("torch._dynamo")) is not None:
                compiler.reset()  # what one command compiled would be tried, and refused, by all that follow


def main() -> int:
    from ringfence.cli.console import INTERRUPTED

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            code = run(**json.loads(line))
        except Exception as error:  # the commands after it may still run
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            code = 1
        print(code, file=answers, flush=True)
        if code == INTERRUPTED:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The commands a sweep is made of, and the program that runs them: ``python -m ringfence.cli.sweep_commands``."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any, final

import typer

from ringfence.cli.console import INTERRUPTED, TERMINATED
from ringfence.cli.ready import ClickException, job_of, settings_of, words_of
from ringfence.sweep.job import Checked

PROGRAM = (sys.executable, "-m", "ringfence.cli.sweep_commands")
SUMMARY = "summary.json"
"""What a run folder holds once the run has ended."""


@final
class SweepCommands:
    """``train``, and those that write a run folder."""

    names = ("train", "certify", "predict", "attack")

    def words(self, command: str, settings: dict[str, Any]) -> list[str]:
        """Settings as words."""
        return words_of(command, settings)

    def settings(self, command: str, words: Sequence[str]) -> dict[str, Any]:
        """Words as settings."""
        return settings_of(command, words)

    def check(self, words: Sequence[str]) -> Checked:
        """What the command makes, and which trainings may share a process with it."""
        described, out = job_of(words), Path(words[list(words).index("--out") + 1])
        if words[0] != "train":
            return Checked((out / ("attack.json" if words[0] == "attack" else SUMMARY),))
        return Checked(tuple(described.files), described.process)


def run(commands: list[list[str]]) -> int:
    """One command, or several trainings at the same time in this process; the exit code."""
    from ringfence.cli import app

    try:
        return train_together(commands) if len(commands) > 1 else int(app(commands[0], standalone_mode=False) or 0)
    finally:
        if (compiler := sys.modules.get("torch._dynamo")) is not None:
            compiler.reset()  # what one command compiled would be tried, and refused, by all that follow


def train_together(commands: list[list[str]]) -> int:
    """Each ends with the weights that its own command gives, and goes on where it stopped, whoever ran it before."""
    from ringfence.cli.console import friendly
    from ringfence.cli.progress import show_training
    from ringfence.training.side_by_side import run_together

    with friendly(), ExitStack() as shown:
        runs = [job_of(words) for words in commands]
        report = {run.out: shown.enter_context(show_training(run, quiet=False, named=run.out.name)) for run in runs}
        run_together(runs, lambda run, training, status: report[run.out](training, status))
    return 0


def _listen(work: SimpleQueue[bytes | None], busy: threading.Event) -> None:
    """Take in pieces of work; when nobody speaks any more, stop what is being done, as Ctrl-C would."""
    for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115  (a buffer's lock would outlive the program)
        work.put(line)
    work.put(None)
    if busy.is_set():
        os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Read pieces of work and answer each with its exit code (ringfence/sweep/schedule.py)."""
    from ringfence.signals import stopped_cleanly

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    work, busy = SimpleQueue[bytes | None](), threading.Event()
    with stopped_cleanly():
        threading.Thread(target=_listen, args=(work, busy), daemon=True).start()
        while (line := work.get()) is not None:
            busy.set()
            told = json.loads(line)
            log = os.open(told["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            try:
                code = run(told["commands"])
            except typer.Exit as left:
                code = left.exit_code
            except ClickException as error:
                print(f"error: {error.format_message()}", file=sys.stderr, flush=True)
                code = 2
            except Exception as error:  # the commands after it may still run
                print(f"error: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                code = 1
            busy.clear()
            print(code, file=answers, flush=True)
            if code in (INTERRUPTED, TERMINATED):
                return


if __name__ == "__main__":
    main()

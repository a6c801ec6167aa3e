"""Several ``ringfence train`` commands at the same time in one process: on a GPU, with --graph, their steps overlap.

    python tools/train_together.py "train --recipe horvath2022-cifar10-gaussian-0.25 ... --out A" "train ... --out B"

Each ends with the weights that its own command gives, and goes on where it stopped, whoever ran it before.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch


def job_of(words: list[str]) -> Any:
    """The training that a command describes; it is checked and not begun."""
    import typer

    from ringfence.cli import app

    found: list[Any] = []

    def take(job: Any, *_: Any) -> None:
        found.append(job)
        raise typer.Exit

    with patch("ringfence.training.parallel.run_parallel", take):
        code = app([*words, "--quiet"], standalone_mode=False)
    if not found:
        raise SystemExit(code or 1)
    return found[0]


def main() -> int:
    from ringfence.cli.console import INTERRUPTED
    from ringfence.store.lock import locked
    from ringfence.training.running import run_together

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", help="each a whole command in quotes, from the word train on")
    jobs = [job_of(shlex.split(command)) for command in parser.parse_args().commands]
    begun = time.monotonic()

    def report(job: Any, member: int, status: Any) -> None:
        if member == 0 and status.step == status.steps:
            print(
                f"{time.monotonic() - begun:.0f} s: {job.out.name} epoch {status.epoch}/{status.epochs}, "
                f"noisy accuracy {status.accuracy:.4f}, {status.left:.0f} s left",
                flush=True,
            )

    try:
        with ExitStack() as held:
            for job in jobs:
                held.enter_context(locked(job.out))
            run_together([(job, member) for job in jobs for member in job.trainings], report)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Several ``ringfence train`` commands at the same time in one process: on a GPU, with --graph, their steps overlap.

    python tools/train_together.py "train --recipe horvath2022-cifar10-gaussian-0.25 ... --out A" "train ... --out B"

Each ends with the weights that its own command gives, and goes on where it stopped, whoever ran it before.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from typing import Any
from unittest.mock import patch


def run_of(words: list[str]) -> Any:
    """The training that a command describes; it is checked and not begun."""
    import typer

    from ringfence.cli import app

    found: list[Any] = []

    def take(run: Any, *_: Any) -> None:
        found.append(run)
        raise typer.Exit

    with patch("ringfence.training.side_by_side.run_training", take):
        code = app([*words, "--quiet"], standalone_mode=False)
    if not found:
        raise SystemExit(code or 1)
    return found[0]


def main() -> int:
    from ringfence.cli.console import INTERRUPTED
    from ringfence.training import run_together

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commands", nargs="+", help="each a whole command in quotes, from the word train on")
    runs = [run_of(shlex.split(command)) for command in parser.parse_args().commands]
    begun = time.monotonic()

    def report(run: Any, member: int, status: Any) -> None:
        if member == 0 and status.step == status.steps:
            print(
                f"{time.monotonic() - begun:.0f} s: {run.out.name} epoch {status.epoch}/{status.epochs}, "
                f"noisy accuracy {status.accuracy:.4f}, {status.left:.0f} s left",
                flush=True,
            )

    try:
        run_together(runs, report)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

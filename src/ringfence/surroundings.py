"""What the processes that we start find: variables, and signals that they hear. Nothing heavy is imported here."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def surroundings() -> dict[str, str]:
    """Variables of every worker of a sweep."""
    # The search path may hold relative folders, and the worker runs elsewhere.
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    return {"RINGFENCE_ZOO": "zoo", "PYTHONPATH": path, "TERM": "dumb"}  # logs have no colours


def hear_interrupts() -> None:
    """A shell in the background lets its children ignore interrupts, and they inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

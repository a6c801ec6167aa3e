"""How threads of OpenMP wait for each other: asleep. Nothing heavy is imported here."""

from __future__ import annotations

import os

POLICY = "OMP_WAIT_POLICY"
"""Environment variable that says so; libraries read it when they are loaded."""
_OTHERS = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def sleep_while_waiting() -> None:
    """For this process and those that it starts, unless the user has said how they wait.

    Else each waits for the others at full speed for milliseconds, behind every operation of a network. Where other
    programs use the cores too, it takes the core from the thread that it waits for: certifying took ten times as long.
    """
    if not any(name in os.environ for name in (POLICY, *_OTHERS)):
        os.environ[POLICY] = "PASSIVE"

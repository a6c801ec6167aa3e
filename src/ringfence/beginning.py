"""What a program stands on before it begins: three open streams, and a folder to work in."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Lead to nowhere what was closed (``2>&-``): the next file that is opened would have its number, and messages
    of libraries would be written into it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: those below are open by now
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115


def refuse_lost_folder() -> None:
    """End where the folder that the program was called in is gone: nothing can be found from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        rule, remedy = "must exist; got one that was removed", "Change to another folder and run it again."
        sys.stderr.write(f"error: working folder: {rule}. {remedy}\n")
        raise SystemExit(2) from None

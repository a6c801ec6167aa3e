"""Runs pytest in forks of a process that has loaded torch and nothing of this house: a second each instead of five.

A line of JSON on its input asks for a run: the source to test, pytest's arguments, files for output and errors. The
answer is a line with its status. Every run is a process of its own, which imports ringfence afresh from that source.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

LIBRARIES = ("torch", "numpy", "scipy.stats", "scipy.optimize", "pandas", "mpmath", "beartype", "fastapi", "rich")
PATIENCE = 7200
"""Seconds after which a run hangs: far more than the longest, of every named test, takes on a slow machine."""
ELSEWHERE = 70
"""The status of a run that did not test the source it was given: none of pytest's."""


def preload() -> None:
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    for library in LIBRARIES:
        with suppress(ImportError):  # what tests skip without
            import_module(library)
    gc.freeze()  # so that forks share it


def run(source: str, arguments: list[str], output: str, errors: str) -> int:
    """Pytest's status, in a process that ends with it."""
    signal.alarm(PATIENCE)
    for number, file in enumerate((os.devnull, output, errors)):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.environ["PYTHONPATH"] = source  # for the processes that tests start
    sys.path.insert(0, source)
    if "ringfence" in sys.modules:
        return ELSEWHERE
    status = int(pytest.main(["-W", "ignore:Module already imported so cannot be rewritten", *arguments]))
    ours = [module for name, module in sys.modules.items() if name.split(".")[0] == "ringfence"]
    files = [Path(module.__file__) for module in ours if module.__file__]
    return status if all(file.is_relative_to(source) for file in files) else ELSEWHERE


def serve() -> int:
    """Answer until the input ends; forks come back from here too, each with the status of its run."""
    preload()
    for line in sys.stdin:
        if not (child := os.fork()):
            return run(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(serve())

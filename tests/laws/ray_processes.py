"""Processes that this one started, directly or not: those of other tests on the machine are none of our business."""

from __future__ import annotations

import os
from pathlib import Path


def descendants(kind: bytes) -> list[int]:
    """Those whose command line says so."""
    parents, found = dict[int, int](), list[int]()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if kind in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        except OSError:
            continue
    return [one for one in found if os.getpid() in _line(one, parents)]


def _line(process: int, parents: dict[int, int]) -> list[int]:
    line = []
    while (process := parents.get(process, 0)) > 1:
        line.append(process)
    return line

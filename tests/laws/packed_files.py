"""A sweep, files for its jobs, and what archives hold of them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

from ringfence.sweep import Job, Limits, Packing

SWEEP = """
zoo: z
train: [{name: two}, {name: pair}, {name: half}, {name: other}]
certify: [{name: run, settings: {x: zoo/z/other}}, {name: later, settings: {x: zoo/z/two}}]
"""


def put(path: Path, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))  # does not compress
    return path


def pack(chosen: Sequence[Job], every: Sequence[Job], out: Path, mib: float = 14.0) -> list[Path]:
    return Packing(chosen, every, out, Limits(mib)).pack().archives


def names(archives: list[Path]) -> list[str]:
    found = []
    for archive in archives:
        with tarfile.open(archive) as tar:
            found += [name.removeprefix("sweep/") for name in tar.getnames()]
    return sorted(found)

"""Arrays of files that are read again and again: those of a sweep's jobs are unpacked once in each of its workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import IO, Any

from numpy.typing import NDArray

MOST_BYTES = 1 << 28
"""Of all arrays that are kept."""
SETTLED = 2.0
"""Seconds since a file was last changed: within the resolution of its times another change would not be seen."""

Arrays = dict[str, NDArray[Any]]
_kept: dict[tuple[object, ...], Arrays] = {}


def unpacked(file: IO[bytes], what: str, read: Callable[[], Arrays]) -> Arrays:
    """What is read of an open file; a copy of it where the very same file, unchanged, was read before."""
    told = os.fstat(file.fileno())
    key = (told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns, what)
    if (known := _kept.get(key)) is None:
        known = read()
        size = sum(one.nbytes for one in known.values())
        if size > MOST_BYTES or time.time() - max(told.st_mtime, told.st_ctime) < SETTLED:
            return known
        while _kept and size + sum(one.nbytes for each in _kept.values() for one in each.values()) > MOST_BYTES:
            _kept.pop(next(iter(_kept)), None)
        _kept[key] = known
    return {name: one.copy() for name, one in known.items()}

"""One writer per folder: a lock that is taken before anything in the folder is written."""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO

from ringfence.errors import StoreError
from ringfence.store.atomic import StoreWarning, writing_errors

LOCK = "lock"
"""Name of the file in the folder; it stays there and says who held it last: host, process, start."""

_LONGEST = 1000


def lock(folder: Path, unlocked: bool = False) -> IO[bytes]:
    """Hold the folder for this process until the file is closed; refused where another one holds it.

    The operating system drops the lock when the process ends, however it ends. unlocked: go on where the disk knows
    no locks; the user then has to keep to one process.
    """
    path = folder / LOCK
    if path.exists() and not path.is_file():  # opening a pipe would wait for its reader
        remedy = "Remove it, or choose another --out."
        raise StoreError(str(path), "must be a file that ringfence made", "something else", remedy)
    with writing_errors(path):
        file = path.open("a+b")
    try:
        if os.name == "posix":
            _take(folder, file, unlocked)
        with writing_errors(path):
            file.truncate(0)
            file.write(json.dumps(_holder()).encode())
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


def _take(folder: Path, file: IO[bytes], unlocked: bool) -> None:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        remedy = "Wait for that process to end, or choose another --out."
        raise StoreError(f"--out {folder}", "a run has one writer", _told(file), remedy) from error
    except OSError as error:
        if not unlocked:
            rule = "must be on a disk with locks, so that two processes cannot write into one run"
            remedy = "Choose another disk, or keep to one process and pass --unlocked."
            raise StoreError(f"--out {folder}", rule, error.strerror or str(error), remedy) from error
        _warn_of_no_locks(folder, str(error))


@cache
def _warn_of_no_locks(folder: Path, reason: str) -> None:
    """A network disk without locks: the user is told once what he has to keep to."""
    message = f"no locks in {folder} ({reason}): keep to one process that writes there"
    warnings.warn(StoreWarning(message), stacklevel=4)


def _holder() -> dict[str, object]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": started}


def _told(file: IO[bytes]) -> str:
    """Who writes, as far as the lock says: its content is a courtesy, the lock itself is the operating system's."""
    try:
        file.seek(0)
        held = json.loads(file.read(_LONGEST))
        return f"process {held['pid']} on {held['host']} writing since {held['start']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process writing"


@contextmanager
def locked(folder: Path, unlocked: bool = False) -> Iterator[None]:
    """The same for a block; the folder is made where it is missing."""
    with writing_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, unlocked):
        yield

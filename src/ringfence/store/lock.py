"""One writer per folder: a lock that is taken before anything in the folder is written."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from ringfence.errors import StoreError
from ringfence.store.atomic import StoreWarning, writing_errors

LOCK = "lock"
"""Name of the file in the folder; it stays there, empty."""


def lock(folder: Path) -> IO[bytes]:
    """Hold the folder for this process until the file is closed; refused where another one holds it.

    The operating system drops the lock when the process ends, however it ends.
    """
    path = folder / LOCK
    if path.exists() and not path.is_file():  # opening a pipe would wait for its reader
        remedy = "Remove it, or choose another --out."
        raise StoreError(str(path), "must be a file that ringfence made", "something else", remedy)
    with writing_errors(path):
        file = path.open("ab")
    if os.name == "posix":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            remedy = "Wait for that process to end, or choose another --out."
            raise StoreError(f"--out {folder}", "a run has one writer", "another process writing", remedy) from error
        except OSError as error:
            _warn_of_no_locks(folder, str(error))
    return file


@cache
def _warn_of_no_locks(folder: Path, reason: str) -> None:
    """A network disk without locks: the user has to keep to one process, and is told so once."""
    message = f"no locks in {folder} ({reason}): keep to one process that writes there"
    warnings.warn(StoreWarning(message), stacklevel=4)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The same for a block; the folder is made where it is missing."""
    with writing_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        yield

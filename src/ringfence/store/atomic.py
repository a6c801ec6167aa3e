"""Writing a file so that after a crash it is either the old one or the new one, never half of one."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ringfence.errors import StoreError

TEMPORARY_PREFIX = ".writing-"
"""Names of unfinished files; what a killed process leaves behind under such a name is never read."""

_CONTINUE = "What was written before is safe: the same command continues from there."
_REMEDIES = {
    errno.ENOSPC: f"Free some space. {_CONTINUE}",
    errno.EDQUOT: f"Free some of the quota. {_CONTINUE}",
    errno.EACCES: "Choose a folder you may write to.",
    errno.EPERM: "Choose a folder you may write to.",
    errno.EROFS: "Choose a folder on a writable disk.",
}


class StoreWarning(UserWarning):
    """Something about a run folder that the reader should know and that stops nothing."""


@contextmanager
def writing_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write into a StoreError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, f"Mend the disk or choose another folder. {_CONTINUE}")
        raise StoreError(str(path), "must be writable", error.strerror or str(error), remedy) from error


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to read into a StoreError that names the file."""
    try:
        yield
    except OSError as error:
        remedy = "Check the path and its permissions."
        raise StoreError(str(path), "must be a readable file", error.strerror or str(error), remedy) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace path by content in one step that survives a crash of the process or the machine."""
    with writing_errors(path):
        with _beside(path, content) as temporary:
            os.replace(temporary, path)
        _sync_folder(path.parent)


def create_exclusively(path: Path, content: bytes) -> None:
    """Make the file whole in one step, and never in the place of another one (FileExistsError)."""
    with _beside(path, content) as temporary:
        _link(temporary, path)
    try:
        _sync_folder(path.parent)
    except OSError:
        path.unlink()  # its writer is told that it failed, and will write the same once more
        raise


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Path]:
    """The content on the disk under a name of its own, which is gone when the block ends."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(OSError):  # litter, which the next writer removes: no reason to call a whole file failed
            temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        # A disk without hard links: the name is taken first, and what is replaced is our own empty file.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(temporary, path)


def json_bytes(value: Any) -> bytes:
    """The value as readable JSON; NaN and infinities are refused because browsers cannot read them."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write value as readable JSON, atomically."""
    write_atomically(path, json_bytes(value))


def read_file(path: Path) -> bytes:
    """The bytes of a file; a folder, a pipe or a device in its place is refused, not waited for."""
    with reading_errors(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError("not a file")
        return path.read_bytes()


def read_json(path: Path) -> Any:
    """The JSON value in path; a StoreError where it cannot be read."""
    content = read_file(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(
            str(path), "must hold JSON", error, "Restore the file from a copy, or start a new run."
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; only POSIX lets a folder be opened for this."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

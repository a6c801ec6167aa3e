"""Files that survive a crash as the old one or the new one, never half of one; and one writer per folder.

A lock is taken before anything in a folder is written.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from glob import escape
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import IO, Any

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
    errno.EISDIR: "Name a file, not a folder.",
    errno.ENOTDIR: "Name a place below folders.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
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
        raise StoreError(path, "must be writable", error.strerror or str(error), remedy) from error


@contextmanager
def reading_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to read into a StoreError that names the file."""
    try:
        yield
    except OSError as error:
        remedy = "Check the path and its permissions."
        raise StoreError(path, "must be a readable file", error.strerror or str(error), remedy) from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace path by content in one step that survives a crash of the process or the machine."""
    with writing_errors(path):
        _refuse_no_file(path)
        with _beside(path, content) as temporary:
            os.replace(temporary, path)
        _sync_folder(path.parent)


def write_output(path: Path, content: bytes) -> None:
    """Write a file that somebody asked for; the files of a run, by which it is told, are refused."""
    told = path.parent / "manifest.json"
    with writing_errors(path):
        listed = f'"{told.name}" {told.read_text("utf-8", "replace")}' if path.exists() and told.is_file() else ""
    if f'"{path.name}"' in listed:
        rule, remedy = "must be no file of a run, which it would replace", "Choose another name."
        raise StoreError(path, rule, "one of those", remedy)
    write_atomically(path, content)


def _refuse_no_file(path: Path) -> None:
    """A folder, and a device, which would be replaced by a file too: /dev/null, where root runs this, for the whole
    machine."""
    if path.is_dir():
        raise StoreError(path, "must be the name of a file", "a folder", "Name a file, not a folder.")
    folder = path.parent.resolve()
    known = path.lstat().st_mode if os.path.lexists(path) else 0
    if folder == Path("/dev") or folder.is_relative_to("/proc") or stat.S_ISCHR(known) or stat.S_ISBLK(known):
        raise StoreError(path, "must be the name of a file", "a device, or a place among them", "Name a file.")


def create_exclusively(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Make the file whole in one step, and never in the place of another one (FileExistsError)."""
    with _beside(path, content, mode) as temporary:
        _link(temporary, path)
    try:
        _sync_folder(path.parent)
    except OSError:
        path.unlink()  # its writer is told that it failed, and will write the same once more
        raise


@contextmanager
def _beside(path: Path, content: bytes, mode: int = 0o666) -> Iterator[Path]:
    """The content on the disk under a name of its own, which is gone when the block ends."""
    temporary = path.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
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


def drop_unfinished(folder: Path, named: str = "") -> None:
    """Remove what killed processes left half made in a folder, files and folders whose names go on so; only who holds
    its lock may."""
    with writing_errors(folder):
        for leftover in folder.glob(f"{TEMPORARY_PREFIX}{escape(named)}*"):
            if leftover.is_dir() and not leftover.is_symlink():
                rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


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
        raise StoreError(path, "must hold JSON", error, "Restore the file from a copy, or start a new run.") from error


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; only POSIX lets a folder be opened for this."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


LOCK = "lock"
"""Name of the file in the folder; it stays there and says who held it last: host, process, start."""

_LONGEST = 1000
_TRIES, _LOOKS = 5, 3000
"""Attempts at a lock, 10 ms apart: while somebody else may write, and while others only look, which may take their time
on a busy machine."""


def lock(folder: Path, unlocked: bool = False, named: str = "out") -> IO[bytes]:
    """Hold the folder for this process until the file is closed; refused where another one holds it.

    The operating system drops the lock when the process ends, however it ends. unlocked: go on where the disk knows
    no locks; the user then has to keep to one process. named: what he called the folder.
    """
    path = folder / LOCK
    with writing_errors(path):
        if path.exists() and not path.is_file():  # opening a pipe would wait for its reader
            remedy = f"Remove it, or choose another `{named}`."
            raise StoreError(path, "must be a file that ringfence made", "something else", remedy)
        file = path.open("a+b", buffering=0)  # on a full disk what waits in a buffer would fail again when it is closed
    try:
        if os.name == "posix":
            _take(folder, file, unlocked, named)
        with writing_errors(path):
            file.truncate(0)
            file.write(json.dumps(_holder()).encode())
            file.flush()
    except BaseException:
        file.close()
        raise
    return file


def check_held(folder: Path, held: IO[bytes]) -> None:
    """Refuse to go on where the folder's lock is another file by now: whoever holds that one writes there too."""
    try:
        same = os.path.samestat(os.fstat(held.fileno()), os.stat(folder / LOCK))
    except OSError:
        same = False
    if not same:
        rule, found = "must stay while a process writes there", "another one, or none: it or its folder was replaced"
        remedy = "See that no other process writes there, then run the same command again."
        raise StoreError(folder / LOCK, rule, found, remedy)


def _take(folder: Path, file: IO[bytes], unlocked: bool, named: str) -> None:
    import fcntl

    try:
        for tried in count(1):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if tried >= _TRIES and (tried >= _LOOKS or not _shared(file)):
                    raise
                time.sleep(0.01)
    except BlockingIOError as error:
        remedy = f"Wait for that process to end, or choose another `{named}`."
        raise StoreError(f"{named} {folder}", "a folder has one writer", _holder_in_words(file), remedy) from error
    except OSError as error:
        if not unlocked:
            rule = "must be on a disk with locks, so that two processes cannot write into one folder"
            remedy = "Choose another disk" + (
                ", or keep to one process and pass `unlocked`." if named == "out" else "."
            )
            raise StoreError(f"{named} {folder}", rule, error.strerror or str(error), remedy) from error
        _warn_of_no_locks(folder, str(error))


def _shared(file: IO[bytes]) -> bool:
    """Whether nobody writes: those who only look share the lock."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


@cache
def _warn_of_no_locks(folder: Path, reason: str) -> None:
    """A network disk without locks: the user is told once what he has to keep to."""
    message = f"no locks in {folder} ({reason}): keep to one process that writes there"
    warnings.warn(StoreWarning(message), stacklevel=4)


def _holder() -> dict[str, object]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "start": started}


def _holder_in_words(file: IO[bytes]) -> str:
    """Who writes, as far as the lock says: its content is a courtesy, the lock itself is the operating system's."""
    try:
        file.seek(0)
        held = json.loads(file.read(_LONGEST))
        return f"process {held['pid']} on {held['host']} writing since {held['start']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process writing"


def writer_of(folder: Path) -> dict[str, Any] | None:
    """Who holds the folder now: host, pid and start, as far as he said; None if nobody does, or no lock can tell."""
    path = folder / LOCK
    if os.name != "posix" or not os.path.isfile(path):  # opening a pipe would wait for its writer
        return None
    try:
        with path.open("rb") as file:
            if not _shared(file):
                held = json.loads(file.read(_LONGEST) or b"{}")
                return held if isinstance(held, dict) else {}
    except (OSError, ValueError, RecursionError):
        return None
    return None


@contextmanager
def locked(folder: Path, unlocked: bool = False, named: str = "out") -> Iterator[None]:
    """The same for a block; the folder is made where it is missing."""
    with writing_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, unlocked, named):
        yield

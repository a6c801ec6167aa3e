"""RecordWriter: records reach the disk soon after they are made, in parts that are not too small.

What a part was computed on is recorded beside it and warned about, never a reason to refuse.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.store.atomic import check_held, drop_unfinished, lock
from ringfence.store.run import RunFolder

FLUSH_RECORDS = 256
FLUSH_SECONDS = 2.0

_PACKAGES = ("ringfence", "torch", "numpy", "scipy")


class RecordWriter:
    """Appends records to a run; a context manager that writes what it holds however the block ends.

    A part is written once FLUSH_RECORDS are held or FLUSH_SECONDS have passed since the last one. Records that
    could not be written stay held, so a later flush (or the end of the block) tries again.
    """

    def __init__(self, run: RunFolder, records: int = FLUSH_RECORDS, seconds: float = FLUSH_SECONDS) -> None:
        self._run = run
        self._records = records
        self._seconds = seconds
        self._held: list[Record] = []
        self._failed = False
        self._flushed = time.monotonic()
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._lock = lock(self._run.path, self._run.unlocked)
        try:
            self._run.check_unchanged()
            for folder in (self._run.path, self._run.path / "parts"):
                drop_unfinished(folder)
        except BaseException:
            self._lock.close()
            raise
        self._flushed = time.monotonic()
        return self

    def add(self, records: Sequence[Record]) -> None:
        """Take the records of whole inputs: all lanes of an input in one call, so that no part splits them."""
        self._held.extend(records)
        if len(self._held) >= self._records or time.monotonic() - self._flushed >= self._seconds:
            self.flush()

    def flush(self) -> None:
        """Write what is held as one part."""
        if self._lock is not None and not self._run.unlocked:
            check_held(self._run.path, self._lock)
        if self._failed:  # a part may be there although its writing failed: what it holds must not come twice
            done = self._run.done_ids()
            self._held = [record for record in self._held if record.input_id not in done]
        if self._held:
            self._failed = True
            self._run.append(self._held, self._run.add_environment(describe_environment()))
            self._held = []
        self._failed = False
        self._flushed = time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.flush()
            self._run.settle()
        except StoreError:
            # The block already ends with the store's own complaint: a second one would hide the first.
            if not isinstance(error, StoreError):
                raise
        finally:
            if self._lock is not None:
                self._lock.close()
                self._lock = None


def describe_environment() -> dict[str, Any]:
    """Versions and hardware of this process; torch is asked for the GPU only where it is loaded already."""
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "gpu": _gpu_name(),
    }


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _cpu_name() -> str:
    """The processor's name; platform.processor() is empty on most Linux machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(torch.cuda.current_device()))

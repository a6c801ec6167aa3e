"""Bytecode of libraries that were installed without it, as images of containers often have them, is kept in a cache.

Python would compile their sources in every process: with torch that takes longer than all the rest of a start. Nothing
heavy is imported here.
"""

from __future__ import annotations

import os
import stat
import sys
from hashlib import blake2b
from importlib.util import cache_from_source, find_spec
from pathlib import Path

FOLDER = "RINGFENCE_BYTECODE"
"""Environment variable that names the folder; empty: nothing is kept."""


def keep_bytecode() -> None:
    """Keep it for this process and those that it starts, where torch has none and Python would write none beside it."""
    if sys.pycache_prefix is not None or os.environ.get(FOLDER) == "" or (torch := _source("torch")) is None:
        return
    writes = not sys.dont_write_bytecode and os.access(torch.parent, os.W_OK)
    if writes or Path(cache_from_source(str(torch))).is_file():
        return
    try:
        folder = _folder(torch)
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_mine(folder):
            return
    except (OSError, RuntimeError):  # a home that cannot be written to, or none at all
        return
    sys.pycache_prefix, sys.dont_write_bytecode = str(folder), False
    os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _source(library: str) -> Path | None:
    """The file that is imported first."""
    found = find_spec(library)
    return None if found is None or found.origin is None else Path(found.origin)


def _folder(torch: Path) -> Path:
    """One for every user and set of installed libraries: Python tells sources apart by their time and size alone, which
    builds of images may level. Processes in other folders must find it, too."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringfence" / "bytecode"
    there = [entry for place in sys.path if os.path.isdir(place) for entry in os.listdir(place)]
    installed = sorted(entry for entry in there if entry.endswith((".dist-info", ".egg-info")))
    told = "\n".join([sys.version, str(torch), (torch.parent / "version.py").read_text("utf-8"), *installed])
    place = Path(os.environ.get(FOLDER) or caches).absolute()
    return place / blake2b(f"{_user()}\n{told}".encode(), digest_size=8).hexdigest()


def _is_mine(folder: Path) -> bool:
    """Whether nobody else can put bytecode there, which would run here: a cache may lie where all may write."""
    told = folder.lstat()
    return stat.S_ISDIR(told.st_mode) and told.st_uid in (_user(), 0) and not told.st_mode & 0o022


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0

"""A bytecode cache of the user's for libraries that were installed without bytecode, as often in container images.

Without it Python compiles their sources in every process: with torch that takes longer than the rest of the start.
Nothing heavy is imported here.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import suppress
from hashlib import blake2b
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from ringfence.caches import cache_folder

FOLDER = "RINGFENCE_BYTECODE"
"""Environment variable that names the folder; empty: nothing is kept."""
KEPT = 30 * 24 * 3600.0
"""Seconds that a folder is kept after its last use."""
_NAME = re.compile(r"[0-9a-f]{16}")


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
        new = not folder.exists()
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_mine(folder):
            return
        with suppress(OSError):  # of an image that is only read, or what another process deletes
            os.utime(folder)  # it is used now
            if new:
                _drop_unused(folder.parent)
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
    there = [entry for place in sys.path if os.path.isdir(place) for entry in os.listdir(place)]
    installed = sorted(entry for entry in there if entry.endswith((".dist-info", ".egg-info")))
    told = "\n".join([sys.version, str(torch), (torch.parent / "version.py").read_text("utf-8"), *installed])
    return (
        cache_folder(FOLDER, "bytecode").absolute() / blake2b(f"{_user()}\n{told}".encode(), digest_size=8).hexdigest()
    )


def _is_mine(folder: Path) -> bool:
    """Whether nobody else can put bytecode there, which would run here: a cache may lie where all may write."""
    told = folder.lstat()
    return stat.S_ISDIR(told.st_mode) and told.st_uid in (_user(), 0) and not told.st_mode & 0o022


def _drop_unused(place: Path) -> None:
    """Delete folders of library sets that nobody has used for long: ours by name, owner and contents, links never."""
    import shutil
    import time

    if shutil.rmtree.avoids_symlink_attacks:  # else a folder could become a link while its files are deleted
        for folder in [one for one in place.iterdir() if _NAME.fullmatch(one.name)]:
            told = folder.lstat()
            old = told.st_mtime < time.time() - KEPT
            if old and stat.S_ISDIR(told.st_mode) and told.st_uid == _user() and _is_bytecode(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_bytecode(folder: Path) -> bool:
    """Whether it holds nothing else: half a file of Python's has a number at its end."""
    return all(".pyc" in name for _, _, names in os.walk(folder) for name in names)


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0

"""A user's own modules are always compiled from their source files; cached bytecode of them is not used.

Python takes bytecode to belong to a source of the same time and size. A file that was changed within a second, or one
of another container image whose times were all set alike, has both too: an old network would run under the digest of
the new one. Libraries and Ringfence itself keep their bytecode. Nothing heavy is imported here.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType
from typing import final
from zipimport import zipimporter

OURS = (os.path.dirname(os.__file__), os.path.dirname(__file__))
"""Folders of Python's own library and of Ringfence."""
BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_plugins: set[str] = set()


@final
class AsItIs(SourceFileLoader):
    """Loads what a file holds now: bytecode is neither read nor kept."""

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


@final
class Compiled(ExtensionFileLoader):
    """Loads a user's compiled module."""


@final
class Sourceless(SourcelessFileLoader):
    """Loads a user's bytecode that has no source."""


def read_sources() -> None:
    """From now on this process compiles users' modules from their sources."""
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
        sys.path_importer_cache.clear()


def flush_files() -> None:
    """Flush files that users' code left open: garbage collection may close one before its buffer is written, and a
    process that leaves at once closes none."""
    if not have_run():
        return
    found = [one for one in gc.get_objects() if issubclass(type(one), BUFFERED)]
    for one in sorted(found, key=lambda one: not isinstance(one, io.TextIOWrapper)):
        with suppress(Exception):  # closed, or on its way there
            one.flush()


def note_plugins(before: set[str]) -> None:
    """Count modules that were imported since then as code of plugins, though they be installed ones."""
    _plugins.update(sys.modules.keys() - before)


def have_run() -> bool:
    """Whether code of users or plugins was imported here. It may have changed libraries, or left modules under common
    names, so that another command in this process could compute something else."""
    loaders = (getattr(getattr(one, "__spec__", None), "loader", None) for one in list(sys.modules.values()))
    return bool(_plugins) or any(isinstance(one, AsItIs | Compiled | Sourceless | zipimporter) for one in loaders)


def _finder(place: str) -> FileFinder:
    if not os.path.isdir(place) or _in_library(place):
        raise ImportError("left to Python", path=place)
    kinds = (Compiled, EXTENSION_SUFFIXES), (AsItIs, SOURCE_SUFFIXES), (Sourceless, BYTECODE_SUFFIXES)
    return FileFinder(place, *kinds)


def _in_library(place: str) -> bool:
    """Whether a folder is one of Python's, Ringfence's or an installed package's, which say their versions; the one a
    command works in is a user's, though packages may be installed there too."""
    path = os.path.abspath(place)
    return any(path == home or path.startswith(home + os.sep) for home in _libraries(tuple(sys.path), os.getcwd()))


@lru_cache(maxsize=8)
def _libraries(path: tuple[str, ...], here: str) -> list[str]:
    folders = [os.path.abspath(one) for one in path if os.path.isdir(one) and not os.path.samefile(one, here)]
    return [*OURS, *(one for one in folders if any(name.endswith(".dist-info") for name in os.listdir(one)))]

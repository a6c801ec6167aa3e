"""Modules that no library is made of, a user's own, are what their files hold when they are imported.

Python knows bytecode by its source's time and size. Both may be those of another file: one that was changed within a
second, or that lies in the same place of another image, whose times a build has levelled. Then one network would run
under the digest of the other. Nothing heavy is imported here.
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
    NamespaceLoader,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import CodeType
from typing import final

OURS = (os.path.dirname(os.__file__), os.path.dirname(__file__))
"""Folders of Python's own library and of Ringfence."""
BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_stays: set[str] = set()


@final
class AsItIs(SourceFileLoader):
    """Loads what a file holds now: bytecode is neither read nor kept."""

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


@final
class Compiled(ExtensionFileLoader):
    """Loads a user's compiled module, which stays as long as the process."""


@final
class Sourceless(SourcelessFileLoader):
    """Loads a user's bytecode that has no source."""


def read_sources() -> None:
    """From now on, in this process."""
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
        sys.path_importer_cache.clear()


def forget_sources() -> bool:
    """Have the next command of a process import its own: a module of the same name may lie in its folder, or have been
    changed. What registered parts stays. False: so do modules without source, compiled ones among them, which no
    process imports twice; the next command needs another process."""
    told = {name: getattr(module, "__spec__", None) for name, module in list(sys.modules.items())}
    loaders = {name: getattr(one, "loader", None) for name, one in told.items()}
    compiled = {name.partition(".")[0] for name, one in loaders.items() if isinstance(one, ExtensionFileLoader)}
    own = {name for name, one in loaders.items() if isinstance(one, AsItIs)}
    spaces = {name for name, one in loaders.items() if isinstance(one, NamespaceLoader)}
    own |= {name for name in spaces if any(one.startswith(f"{name}.") for one in own) and not _is_library(name)}
    for name in own - _stays:
        if name.partition(".")[0] not in compiled:
            del sys.modules[name]
    return not any(isinstance(one, Compiled | Sourceless) for one in loaders.values())


def flush_files() -> None:
    """Write out what users' code has in files that it left open: garbage collection may close one before its buffer is
    written, and a process that leaves at once closes none."""
    if not have_run():
        return
    found = [one for one in gc.get_objects() if issubclass(type(one), BUFFERED)]
    for one in sorted(found, key=lambda one: not isinstance(one, io.TextIOWrapper)):
        with suppress(Exception):  # closed, or on its way there
            one.flush()


def keep_since(before: set[str]) -> None:
    """What was imported since then stays."""
    _stays.update(sys.modules.keys() - before)


def have_run() -> bool:
    """Whether code of users, plugins among it, was imported."""
    loaders = (getattr(getattr(one, "__spec__", None), "loader", None) for one in list(sys.modules.values()))
    return bool(_stays) or any(isinstance(one, AsItIs | Compiled | Sourceless) for one in loaders)


def _finder(place: str) -> FileFinder:
    if not os.path.isdir(place) or _in_library(place):
        raise ImportError("left to Python", path=place)
    kinds = (Compiled, EXTENSION_SUFFIXES), (AsItIs, SOURCE_SUFFIXES), (Sourceless, BYTECODE_SUFFIXES)
    return FileFinder(place, *kinds)


def _is_library(namespace: str) -> bool:
    return any(map(_in_library, sys.modules[namespace].__path__))


def _in_library(place: str) -> bool:
    """Whether a folder is one of Python's, Ringfence's or an installed package's, which say their versions."""
    path = os.path.abspath(place)
    return any(path == home or path.startswith(home + os.sep) for home in _libraries(tuple(sys.path)))


@lru_cache(maxsize=8)
def _libraries(path: tuple[str, ...]) -> list[str]:
    folders = [os.path.abspath(one) for one in path if os.path.isdir(one)]
    return [*OURS, *(one for one in folders if any(name.endswith(".dist-info") for name in os.listdir(one)))]

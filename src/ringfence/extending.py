"""register: what users add becomes known by its name, to Python, trees, job files and the command line alike.

A part is a class below one of the nine kinds, or an object of it. Nothing here imports a room: whoever has such a class
has imported its room already.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, final

from ringfence.digests import hashed
from ringfence.errors import ArgumentError, RingfenceError
from ringfence.sources import AsItIs, note_plugins

Part = TypeVar("Part")

PLUGINS: Final = "RINGFENCE_PLUGINS"
"""The environment variable with files and modules to import, separated by commas; and the name of --plugin."""
GROUP: Final = "ringfence.plugins"
"""The entry point group of installed packages that register parts."""


@final
@dataclass(frozen=True)
class Registry:
    """Where parts of a kind are kept: a dictionary of a room, of classes or of objects without settings.

    made: a function of that room that turns the class into what is kept; spelled: how its names are written.
    """

    room: str
    name: str
    objects: bool = False
    made: str | None = None
    spelled: Callable[[str], str] = str


KINDS: Final = {
    "ringfence.mechanisms.base.Mechanism": Registry(
        "ringfence.mechanisms", "MECHANISMS", objects=True, spelled=lambda name: name.replace("-", "_")
    ),
    "ringfence.procedures.base.Procedure": Registry(
        "ringfence.procedures", "PROCEDURES", spelled=lambda name: name.replace("_", "-")
    ),
    "ringfence.noise.base.Noise": Registry("ringfence.noise", "NOISES"),
    "ringfence.lift.base.Lift": Registry("ringfence.lift", "LIFTS"),
    "ringfence.classifiers.base.Classifier": Registry("ringfence.models.registry", "NODES", made="node_of"),
    "ringfence.models.registry.NodeKind": Registry("ringfence.models.registry", "NODES"),
    "ringfence.sampling.readout.Readout": Registry("ringfence.sampling.readout", "READOUTS", objects=True),
    "ringfence.training.objectives.base.Objective": Registry("ringfence.training.objectives", "OBJECTIVES"),
    "ringfence.models.registry.Source": Registry("ringfence.models.registry", "SOURCES", objects=True),
    "ringfence.work.Engine": Registry("ringfence.work", "ENGINES", objects=True),
}


def register(part: Part) -> Part:
    """Make a part known by its ``name``, as a decorator or a call; what is there already keeps its name.

    A class of the same module and name may take its own place again, as a cell of a notebook that is run twice.
    """
    kind = part if isinstance(part, type) else type(part)
    bases = [f"{one.__module__}.{one.__qualname__}" for one in kind.__mro__]
    home = next((KINDS[one] for one in bases if one in KINDS), None)
    name = getattr(part, "name", None)
    if home is None:
        known = ", ".join(one.rpartition(".")[2] for one in KINDS)
        raise ArgumentError("register", f"takes a class below one of {known}", repr(part), "Subclass one of them.")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9]+([-_][a-z0-9]+)*", name):
        rule = "needs a name of small letters and digits, words divided by - or _"
        raise ArgumentError(f"{kind.__name__}.name", rule, repr(name), 'Write e.g. name = "my-own".')
    room = import_module(home.room)
    registry: dict[str, Any] = getattr(room, home.name)
    kept: Any = part
    if home.objects and isinstance(part, type):
        kept = part()
    elif home.made is not None:
        kept = getattr(room, home.made)(part)
    key = home.spelled(name)
    before = registry.get(key)
    if before is not None and _identity(before) != _identity(kept):
        raise ArgumentError(f"{kind.__name__}.name", f"{name} is taken", repr(before), "Choose another name.")
    registry[key] = kept
    return part


def _identity(part: Any) -> tuple[str, str]:
    kind = part if isinstance(part, type) else type(part)
    return kind.__module__, kind.__qualname__


def load_plugins(more: Iterable[str] = ()) -> None:
    """Import what registers parts: installed packages that say so, $RINGFENCE_PLUGINS, and more (file.py or a module).

    A run folder never names a plugin: whoever wrote it could run code here otherwise. Commands that this one starts
    inherit them.
    """
    asked = [one for one in os.environ.get(PLUGINS, "").split(",") if one.strip()]
    asked += [str(Path(one).absolute()) if one.endswith(".py") else one for one in more]
    if asked:
        os.environ[PLUGINS] = ",".join(dict.fromkeys(asked))
    for name in (*_declared(tuple(sys.path)), *asked):
        _imported(name.strip())


@cache
def _declared(path: tuple[str, ...]) -> tuple[str, ...]:
    """What packages on the search path declare; every command of a sweep asks."""
    return tuple(one.value for one in entry_points(group=GROUP))


def plugin_digests() -> dict[str, str]:
    """What was imported as a plugin here, by its name, and a digest of its code as it was then."""
    return dict(_digests)


_digests: dict[str, str] = {}


def _code_of(module: ModuleType) -> str:
    """A digest of a file, or of all that a package consists of."""
    folders = [Path(one) for one in getattr(module, "__path__", ())]
    files = sorted(one for folder in folders for one in folder.rglob("*.py")) or [Path(str(module.__file__))]
    return hashed(one.read_bytes() for one in files)


@cache
def _imported(name: str) -> None:
    """Import once; whatever goes wrong is told as a mistake of the plugin."""
    before = set(sys.modules)
    try:
        _digests[name] = _code_of(
            import_file(Path(name), "ringfence_plugin") if name.endswith(".py") else import_module(name)
        )
    except RingfenceError as error:
        raise ArgumentError(
            "plugin", "must register its parts", f"{name}: {error}".rstrip("."), "Correct it."
        ) from error
    except (Exception, SystemExit) as error:
        told = f"{name}: {type(error).__name__}: {error}"
        raise ArgumentError(
            "plugin", "must be a file.py or a module that can be imported", told, "Correct it."
        ) from error
    note_plugins(before)


def import_file(path: Path, prefix: str) -> ModuleType:
    """The module that a file is, known to Python by the prefix and the file's name."""
    name = f"{prefix}_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path, loader=AsItIs(name, str(path)))
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and pickling look their module up by name
    found.loader.exec_module(module)
    return module

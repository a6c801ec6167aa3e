"""Models built by the user's own code: ``pkg.module:factory`` or ``file.py:factory``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from ringfence.classifiers.base import refuse_lazy
from ringfence.errors import ModelError, did_you_mean
from ringfence.extending import import_file
from ringfence.models.registry import SOURCES


def build_from_factory(spec: str, num_classes: int | None) -> nn.Module:
    """Calls the factory or source, which receives ``num_classes`` where one is given and it has such a parameter, or
    takes any (``**kwargs``)."""
    factory = _registered(spec) or _find(spec, *spec.rpartition(":")[::2])
    try:
        module = factory() if num_classes is None else _called_with_classes(factory, num_classes)
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelError(
            spec,
            "the factory must build the model",
            f"{type(error).__name__}: {error}",
            "Call the factory in Python to see where it fails.",
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(
            spec, "the factory must return a torch.nn.Module", f"a {type(module).__name__}", "Return the network."
        )
    refuse_lazy(module, spec, ModelError)
    return module


def _called_with_classes(factory: Callable[..., Any], num_classes: int) -> Any:
    """What a factory makes that is told the classes, if it can be: what takes keywords need not take this one."""
    accepts = inspect.signature(factory).parameters
    if "num_classes" in accepts:
        return factory(num_classes=num_classes)
    if any(one.kind is one.VAR_KEYWORD for one in accepts.values()):
        try:
            return factory(num_classes=num_classes)
        except TypeError as error:
            if "num_classes" not in str(error):
                raise
    return factory()


def _registered(spec: str) -> Callable[..., Any] | None:
    """What loads a leaf of a registered source."""
    name, _, rest = spec.partition(":")
    return (lambda num_classes=None: SOURCES[name].load(rest, num_classes)) if name in SOURCES else None


def _find(spec: str, place: str, name: str) -> Callable[..., Any]:
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        rule, received = "must name a module that can be imported", f"{type(error).__name__}: {error}"
        known, otherwise = ("default", "zoo", *SOURCES), "Give pkg.module:factory or path/to/file.py:factory."
        remedy = did_you_mean(place.lower(), known, otherwise, written=lambda one: f"{one}:{name}")
        raise ModelError(spec, rule, received, remedy) from error
    factory: Callable[..., Any] | None = vars(module).get(name)
    if not callable(factory):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        received = f"no callable '{name}' in {place} (found: {', '.join(public) or 'none'})"
        raise ModelError(spec, "must name a function or class", received, "Correct the name after the colon.")
    return factory


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        received = "no such file" if path.is_absolute() else f"no such file in {Path.cwd()}"
        raise ModelError(path, "must be an existing file", received, "Check the path before the colon.")
    return import_file(path, "_ringfence_factory")


def _import_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    # An installed command does not search the folder it is started in; people expect it to.
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(here)

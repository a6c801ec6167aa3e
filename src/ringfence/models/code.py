"""The code behind a model, as far as a digest can see it: files of its classes, its hooks and its factory."""

from __future__ import annotations

import inspect
import site
import sys
import sysconfig
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from ringfence.digests import hashed
from ringfence.models.registry import SOURCES

OURS = "1"
"""Raised whenever a network or wrapper of Ringfence computes something else with the same weights."""

_DEEPEST = 6
"""Containers within containers that are looked into."""

PACKAGE = __name__.partition(".")[0]


def code_parts(module: nn.Module, factory: str | None = None) -> dict[str, str]:
    """Parts of the digest: ``ours`` (names of Ringfence's classes and OURS), ``code`` (everybody else's sources).

    What is installed (site-packages, the standard library) is left out: environment.json names versions. Of every
    class the whole file counts, for the functions it calls; without a file, its bytecode. factory: the spec.
    """
    ours: set[str] = set()
    foreign: set[bytes] = set()
    for found in (*_things(module), *([] if factory is None else _factory(factory))):
        thing: Any = found if isinstance(found, type | Path) or inspect.isroutine(found) else type(found)
        if getattr(thing, "__module__", "").partition(".")[0] == PACKAGE:
            ours.add(thing.__qualname__)
        elif (source := _source(thing)) is not None:
            foreign.add(source)
    parts = {"ours": hashed([f"{OURS} {sorted(ours)}".encode()])}
    return {**parts, "code": hashed(sorted(foreign))} if foreign else parts


def code_settings(things: Iterable[object]) -> list[str]:
    """Setting of a digest for the code of classes and objects; none where it is Ringfence's own."""
    kinds = [one if isinstance(one, type) else type(one) for one in things]
    theirs = [kind for kind in kinds if kind.__module__.partition(".")[0] != PACKAGE]
    return [f"code={hashed(sorted(found))}" for found in [[_source(one) or b"" for one in theirs]] if found]


def structure(module: nn.Module) -> str:
    """What a network of a program is made of beside its weights: names of its classes, installed ones too, and what
    their instances hold: numbers, words, functions, and tensors that no state dict has.

    A network that a spec names is told by its code; one that a program made may be any composition of torch's layers.
    """
    return hashed(line for name, part in module.named_modules() for line in _held(name, part))


def _held(name: str, part: nn.Module) -> Iterator[bytes]:
    yield f"{name}: {type(part).__module__}.{type(part).__qualname__}".encode()
    unsaved = {key: part._buffers[key] for key in part._non_persistent_buffers_set}
    for key, value in sorted({**vars(part), **unsaved}.items()):
        yield from _value(key, value) if key != "training" else ()
    for place, hook in enumerate((*part._forward_hooks.values(), *part._forward_pre_hooks.values())):
        yield from _value(f"hook {place}", hook)


def _value(key: str, value: Any, depth: int = 0) -> Iterator[bytes]:
    """A value by its name: numbers, arrays, functions with what they close over, and containers of those.

    Objects of other classes are passed over: theirs may say where a file lay, or when. So are names that libraries
    keep to themselves, and what lies deeper than anyone writes.
    """
    if isinstance(value, torch.Tensor):
        yield f"{key}={value.dtype}{tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray | np.generic) and not _plain(value) and value.dtype != object:
        yield f"{key}={value.dtype}{value.shape}".encode()
        yield value.tobytes()
    elif inspect.isroutine(value):
        yield f"{key}={getattr(value, '__module__', '')}.{value.__qualname__}".encode()
        yield from _values(key, _closed_over(value), depth)
    elif _plain(value):
        yield f"{key}={value!r}".encode()
    elif isinstance(value, partial):
        yield from _value(key, value.func, depth + 1)
        yield from _values(key, {**dict(enumerate(value.args)), **value.keywords}, depth)
    elif not key.startswith("_"):
        yield from _values(key, _entries(value), depth)


def _values(key: str, inside: Mapping[Any, Any], depth: int) -> Iterator[bytes]:
    for name, value in inside.items() if depth < _DEEPEST else ():
        yield from _value(f"{key}.{name}", value, depth + 1)


def _entries(container: Any) -> Mapping[Any, Any]:
    """What a container holds, by name or place; of anything else nothing."""
    if isinstance(container, Mapping):
        return container
    if isinstance(container, Namespace | SimpleNamespace):
        return vars(container)
    if isinstance(container, set | frozenset):
        container = sorted((one for one in container if _plain(one)), key=repr)
    return dict(enumerate(container)) if isinstance(container, list | tuple) else {}


def _closed_over(function: Any) -> dict[str, Any]:
    """What a function reads beside its arguments: variables around it, and defaults, as in ``lambda x, k=k: k * x``."""
    found: dict[str, Any] = dict(getattr(function, "__kwdefaults__", None) or {})
    found |= {f"default {place}": one for place, one in enumerate(getattr(function, "__defaults__", None) or ())}
    if inspect.isfunction(function):
        for name, variable in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # not assigned yet
                found[name] = variable.cell_contents
    return found


def _plain(value: Any, depth: int = 0) -> bool:
    deeper = depth < _DEEPEST and isinstance(value, list | tuple)
    inside = deeper and all(_plain(one, depth + 1) for one in value)
    return inside or value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype)


def factory_file(place: str) -> Path | None:
    """The file of ``file.py`` or of an imported ``pkg.module``; None where it has none."""
    if place.endswith(".py"):
        return Path(place)
    file = getattr(sys.modules.get(place), "__file__", None)
    return None if file is None else Path(file)


def _factory(spec: str) -> Iterator[Any]:
    """The file that a factory's spec names, and the factory, which may come from another one."""
    if (registered := SOURCES.get(spec.partition(":")[0])) is not None:
        yield type(registered)
        return
    place, _, name = spec.rpartition(":")
    if place.partition(".")[0] != PACKAGE and (file := factory_file(place)) is not None:
        yield file
    imported = sys.modules.get(place)
    if imported is not None and (found := vars(imported).get(name)) is not None:
        yield found


def _things(module: nn.Module) -> Iterator[Any]:
    """Classes with their bases, hooks, and functions put in the place of a method."""
    for _, part in module.named_modules():
        yield from type(part).__mro__
        yield from (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
        yield from (value for value in vars(part).values() if inspect.isroutine(value))


def _source(thing: Any) -> bytes | None:
    """The bytes that stand for it; None for what is installed or built in."""
    if getattr(thing, "__module__", None) == "builtins":
        return None
    try:
        file = thing if isinstance(thing, Path) else Path(inspect.getfile(inspect.unwrap(thing)))
    except (TypeError, OSError, ValueError):
        return _bytecode(thing)
    if _installed(file.resolve()):
        return None
    try:
        return hashed([file.read_bytes()]).encode()
    except OSError:  # a notebook's cell, an interpreter's line
        return _bytecode(thing)


def _bytecode(thing: Any) -> bytes:
    codes = [
        value.__code__ for value in (thing, *getattr(thing, "__dict__", {}).values()) if hasattr(value, "__code__")
    ]
    name = getattr(thing, "__qualname__", type(thing).__qualname__)
    return hashed([name.encode(), *(line.encode() for code in codes for line in _lines(code))]).encode()


def _lines(code: CodeType) -> Iterator[str]:
    """Instructions, names and constants, without the addresses that change from process to process."""
    yield f"{code.co_name} {code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)
        else:
            # The order of a set changes from process to process.
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


@cache
def _places() -> tuple[Path, ...]:
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({Path(place).resolve() for place in (*named, *site.getsitepackages(), site.getusersitepackages())})


def _installed(file: Path) -> bool:
    return any(file.is_relative_to(place) for place in _places())

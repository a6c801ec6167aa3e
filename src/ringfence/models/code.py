"""The code behind a model, as far as a digest can see it: files of its classes, its hooks and its factory."""

from __future__ import annotations

import inspect
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from torch import nn

from ringfence.digests import hashed
from ringfence.models.registry import SOURCES

OURS = "1"
"""Raised whenever a network or wrapper of Ringfence computes something else with the same weights."""

PACKAGE = __name__.partition(".")[0]


def code_parts(module: nn.Module, factory: str | None = None) -> dict[str, str]:
    """Parts of the digest: ``ours`` (names of Ringfence's classes and OURS), ``code`` (everybody else's sources).

    What is installed (site-packages, the standard library) is left out: environment.json names versions. Of every
    class the whole file counts, for the functions it calls; without a file, its bytecode. factory: the spec.
    """
    ours: set[str] = set()
    foreign: set[bytes] = set()
    each: dict[int, Any] = {}  # a deep network has a few classes in many layers
    for found in (*things(module), *([] if factory is None else _factory(factory))):
        thing: Any = found if isinstance(found, type | Path) or inspect.isroutine(found) else type(found)
        each[id(thing)] = thing
    for thing in each.values():
        if getattr(thing, "__module__", "").partition(".")[0] == PACKAGE:
            ours.add(thing.__qualname__)
        elif (source := source_of(thing)) is not None:
            foreign.add(source)
    parts = {"ours": hashed([f"{OURS} {sorted(ours)}".encode()])}
    return {**parts, "code": hashed(sorted(foreign))} if foreign else parts


def code_settings(things: Iterable[object]) -> list[str]:
    """Setting of a digest for the code of classes and objects; none where it is Ringfence's own."""
    kinds = [one if isinstance(one, type) else type(one) for one in things]
    theirs = [kind for kind in kinds if kind.__module__.partition(".")[0] != PACKAGE]
    return [f"code={hashed(sorted(found))}" for found in [[source_of(one) or b"" for one in theirs]] if found]


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


def things(module: nn.Module) -> Iterator[Any]:
    """Classes with their bases, hooks, functions put in the place of a method, and objects of the user's classes."""
    installed: dict[type, bool] = {}
    for _, part in module.named_modules():
        yield from type(part).__mro__
        yield from (*part._forward_hooks.values(), *part._forward_pre_hooks.values())
        for one in vars(part).values():
            if type(one) not in installed:
                installed[type(one)] = is_installed(type(one))
            if inspect.isroutine(one) or not installed[type(one)]:
                yield one


def source_of(thing: Any) -> bytes | None:
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
        content = file.read_bytes()
    except OSError:  # a notebook's cell, an interpreter's line
        return _bytecode(thing)
    # A file that was edited since does not hold what runs here, and will hold what runs in the next process.
    return hashed([content]).encode() if _is_what_runs(thing, file.resolve(), content) else _bytecode(thing)


def _is_what_runs(thing: Any, file: Path, content: bytes) -> bool:
    """Whether functions that came from a file are still those that it holds: of a class or function, and of its module.

    A file that is named is read anew where it is loaded.
    """
    if isinstance(thing, Path):
        return True
    module = sys.modules.get(str(getattr(thing, "__module__", "")))
    place = getattr(module, "__file__", None)
    there = vars(module).values() if place is not None and Path(place).resolve() == file else ()
    beside = [one for one in there if isinstance(one, type | FunctionType) and one.__module__ == thing.__module__]
    each = [
        value for one in (thing, *beside) for value in (one, *(vars(one).values() if isinstance(one, type) else ()))
    ]
    functions: list[Any] = [one for one in each if isinstance(one, FunctionType | staticmethod | classmethod)]
    bare = [inspect.unwrap(getattr(one, "__func__", one)) for one in functions]
    codes = {one.__code__ for one in bare if isinstance(one, FunctionType)}
    names = {name for name in {code.co_filename for code in codes} if Path(name).resolve() == file}
    return {_fingerprint(code) for code in codes if code.co_filename in names} <= _codes_in(content)


@lru_cache(maxsize=64)
def _codes_in(content: bytes) -> frozenset[tuple[int, str]]:
    """All functions of a source; none where it cannot be compiled."""
    try:
        return frozenset(map(_fingerprint, with_inner(compile(content, "", "exec", dont_inherit=True))))
    except (SyntaxError, ValueError):
        return frozenset()


def with_inner(code: CodeType) -> Iterator[CodeType]:
    """The code, and that of all functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from with_inner(constant)


@lru_cache(maxsize=4096)
def _fingerprint(code: CodeType) -> tuple[int, str]:
    return code.co_firstlineno, hashed(line.encode("utf-8", "surrogatepass") for line in _lines(code))


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


def is_installed(kind: type) -> bool:
    """Whether a class came with Python, an installed library or Ringfence; one of a notebook or a program did not."""
    if kind.__module__.partition(".")[0] == PACKAGE:
        return True
    try:
        return _installed(Path(inspect.getfile(kind)).resolve())
    except OSError:  # of the interpreter's main module
        return False
    except TypeError:  # built in or written in C, if its module is there at all
        return kind.__module__ in sys.modules


def is_theirs(function: FunctionType) -> bool:
    """Whether a function's own code, not what it wraps, is the user's."""
    ours = str(function.__module__).partition(".")[0] == PACKAGE
    return not ours and not _installed(Path(function.__code__.co_filename).resolve())


@cache
def _places() -> tuple[Path, ...]:
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({Path(place).resolve() for place in (*named, *site.getsitepackages(), site.getusersitepackages())})


def _installed(file: Path) -> bool:
    return any(file.is_relative_to(place) for place in _places())

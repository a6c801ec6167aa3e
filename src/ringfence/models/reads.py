"""What the code of a network reads beside its arguments and its own attributes: variables of modules and classes."""

from __future__ import annotations

import dis
import inspect
import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import _lru_cache_wrapper, cached_property, partial, partialmethod
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from ringfence.digests import hashed
from ringfence.models.code import (
    bytecode_of,
    codes_in,
    is_installed,
    is_installed_module,
    is_theirs,
    names_in_bases,
    source_of,
    things,
)
from ringfence.models.mentions import Mentions, mentions
from ringfence.models.structure import Walk, closed_over, entries, is_plain, kept_by, passes, value_lines

DEVICE = re.compile(r"(cpu|cuda|mps)(:\d+)?")
"""How programs say where to compute, which changes from machine to machine and is no part of a network."""
ANY_NAME = {"vars", "__dict__", "__getattribute__", "getattr", "globals", "locals", "eval", "exec"}
ANY_NAME |= {"buffers", "named_buffers", "asdict", "astuple", "attrgetter"}
"""By these code reads what it does not name: then nothing is known to be idle."""
_READING = ("LOAD_GLOBAL", "LOAD_NAME")
_MAKING = {"__init__", "__new__", "__post_init__"}
_ASIDE = frozenset(f"__{name}__" for name in ("repr", "str", "getstate", "setstate", "reduce", "deepcopy", "del"))
"""What no forward asks, though it need not be named to be called."""


class Reached:
    """Functions and classes of the user's that a network's code reaches, from ``forward``, hooks and functions among
    attributes on, and the names that stand in it."""

    def __init__(self, module: nn.Module) -> None:
        self.parts = {type(part) for part in module.modules()}
        self.walked = {id(part) for part in module.modules()}
        self.seen: dict[int, Any] = {}  # kept, so that no number becomes another's
        self.functions: list[FunctionType] = []
        self.kinds: list[type] = []
        self.spaces: list[ModuleType] = []
        self.made: set[type] = set()
        self.names = Mentions(whole={"forward", "__call__"})
        self.told: dict[int, tuple[bytes, ...]] = {}
        every = {id(one): one for one in (_code_of(one) for one in things(module))}.values()
        self.sources = {source_of(one) for one in every}  # which another part of the digest tells
        self.codes = {
            inside.__code__
            for one in every
            if source_of(one) == bytecode_of(one)
            for inside in (one, *getattr(one, "__dict__", {}).values())
            if hasattr(inside, "__code__")
        }
        self.hooks = [*_global_forward_hooks.values(), *_global_forward_pre_hooks.values()]
        waiting = [
            *self.hooks,
            *things(module),
            *self._used([one for part in module.modules() for one in kept_by(part).values()]),
        ]
        while waiting:
            while waiting:
                waiting += self._meet(waiting.pop())
            waiting = [one for one in self._named() if id(one) not in self.seen]
        # What the code sets, fills, counts up or prints, and reads for nothing else.
        used = self.names.words.union(*(names_in_bases(kind) for kind in self.kinds))
        self.idle = frozenset() if used & ANY_NAME else frozenset(self.names.idle - used)

    def _meet(self, thing: Any) -> list[Any]:
        """Take in a value that code can reach, and say what is to be taken in with it."""
        known, self.seen[id(thing)] = id(thing) in self.seen, thing
        if known or is_plain(thing) or isinstance(thing, torch.Tensor):
            return []
        if (inside := _inside(thing)) is not None:
            return inside
        if isinstance(thing, FunctionType):
            if is_theirs(thing):
                self.functions.append(thing)
                self.names |= mentions(thing)
            return self._used([*_variables(thing).values(), *vars(thing).values()])
        if isinstance(thing, type):
            if not (thing.__module__ == "builtins" or is_installed(thing)):
                self.kinds.append(thing)
                return list(thing.__mro__)
        elif isinstance(thing, ModuleType):
            self.spaces.append(thing)
        elif isinstance(thing, nn.Module) and id(thing) not in self.walked:
            return list(things(thing))
        elif not isinstance(thing, nn.Module):
            return [type(thing), *self._used(list(entries(thing).values()))]
        return []

    def _used(self, values: list[Any]) -> list[Any]:
        """Values, of which classes may be called to make something."""
        self.made |= {one for one in values if isinstance(one, type)} - self.parts
        return values

    def _named(self) -> Iterator[Any]:
        """Members of the user's classes and of modules that the code names, or that run without being named."""
        words = self.names.words
        for kind in self.kinds:
            every = words | names_in_bases(kind)
            for name, value in list(vars(kind).items()):
                hidden = name.startswith("__") and name.endswith("__") and callable(value) and name not in _ASIDE
                if kind in self.made if name in _MAKING else hidden or name in every:
                    yield value
        for space in self.spaces:
            there, installed = vars(space), is_installed_module(space)
            for value in self._used([there[name] for name in words & there.keys()]):
                if not installed or isinstance(value, FunctionType):
                    yield value

    def lines(self) -> dict[str, str]:
        """A hash for each name of a function, a variable or an attribute that is read."""
        found: dict[str, set[tuple[bytes, ...]]] = {}
        for name, told in self._lines():
            found.setdefault(re.sub(r"[\s=,:]", "_", name), set()).add(told)
        return {name: hashed(line for one in sorted(found[name]) for line in one)[:16] for name in sorted(found)}

    def _lines(self) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        for function in self.functions:
            if function.__code__ not in self.codes:
                yield from self._source(function)
            for name, value in {**_variables(function), **vars(function)}.items():
                yield from self._value(name, name, value)
        for place, hook in enumerate(self.hooks):
            yield from self._value(f"hook of all modules {place}", "", hook)
        for name in self.names.imported:
            if (file := _file_of(name)) is not None and (source := source_of(file)) is not None:
                yield f"import {name}", (source,)
        words = self.names.words
        for kind in self.kinds:
            yield from self._source(kind)
            for name in (words | names_in_bases(kind)) & vars(kind).keys():
                if not name.startswith("__"):
                    yield from self._value(f"{kind.__qualname__}.{name}", name, vars(kind)[name])
        for space in self.spaces:
            for name in words & vars(space).keys() if not is_installed_module(space) else ():
                yield from self._value(f"{space.__name__}.{name}", name, vars(space)[name])

    def _source(self, thing: Any) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        source = source_of(thing)
        if source is not None and source not in self.sources:
            yield thing.__qualname__, (source,)

    def _value(self, where: str, name: str, value: Any) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """All of a value that is used as it is; of mappings and objects of which only members are named, those."""
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        place = isinstance(value, str) and (DEVICE.fullmatch(value) or os.path.isabs(value))
        idle = name in self.idle and passes(value)
        if place or idle or isinstance(value, torch.device | ModuleType | property):
            return
        by_name = isinstance(value, Mapping) and name not in self.names.asked
        by_name |= isinstance(value, Namespace | SimpleNamespace) or type(value) in self.kinds
        by_name &= not isinstance(value, Enum | nn.Module)
        if by_name and name not in self.names.whole:
            for key, one in entries(value).items():
                if isinstance(key, str) and key in self.names.words:
                    yield from self._value(f"{where}.{key}", key, one)
            return
        if id(value) not in self.told:  # large ones may be read in many places
            lines = [f"{value.__name__}".encode()] if _is_of_others(value) else None
            lines = lines or list(value_lines("", value, Walk(set(self.walked), self.idle)))
            lines += [_line(value)] if isinstance(value, FunctionType) else []
            self.told[id(value)] = (hashed(lines).encode(),) if lines else ()
        if told := self.told[id(value)]:
            yield where, told


def _inside(thing: Any) -> list[Any] | None:
    """What is behind a method, a property, a cache or arguments that were given before; None for anything else."""
    if isinstance(thing, property):
        return [thing.fget]
    if isinstance(thing, staticmethod | classmethod):
        return [thing.__func__]
    if isinstance(thing, MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, cached_property):
        return [thing.func]
    if isinstance(thing, partial | partialmethod):
        return [thing.func, *thing.args, *thing.keywords.values()]
    return [thing.__wrapped__] if isinstance(thing, _lru_cache_wrapper) else None


def _code_of(thing: Any) -> Any:
    """A class or a function itself, of an object its class."""
    return thing if isinstance(thing, type) or inspect.isroutine(thing) else type(thing)


def _file_of(module: str) -> Path | None:
    """The file that an import would take, though nothing is imported."""
    package = module.rpartition(".")[0]
    found = find_spec(module) if not package or package in sys.modules else None
    return Path(found.origin) if found is not None and found.origin is not None and found.has_location else None


def _line(function: FunctionType) -> bytes:
    """Where it stands in its file, which may define it again."""
    code = function.__code__
    return str(code.co_firstlineno if is_theirs(function) and os.path.isfile(code.co_filename) else 0).encode()


def _is_of_others(value: Any) -> bool:
    """Whether it is a function or a class of an installed library, which may lie elsewhere in another version of it."""
    if isinstance(value, type):
        return is_installed(value)
    return inspect.isbuiltin(value) or (isinstance(value, FunctionType) and not is_theirs(value))


def _variables(function: FunctionType) -> dict[str, Any]:
    """Variables of its module and around it that stand in a function, and its defaults; of one that is installed, as
    decorators are, only the latter."""
    codes = codes_in(function.__code__) if is_theirs(function) else ()
    names = {one.argval for code in codes for one in dis.get_instructions(code) if one.opname in _READING}
    there = {name: function.__globals__[name] for name in names if name in function.__globals__}
    return {name: one for name, one in {**there, **closed_over(function)}.items() if not name.startswith("__")}

"""Variables of modules and classes that a network's code reads, for its digest: found in the bytecode, by name."""

from __future__ import annotations

import dis
import os
from argparse import Namespace
from collections import deque
from collections.abc import Iterator
from functools import _lru_cache_wrapper, partial
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any, final

import numpy as np
import torch
from torch import nn

from ringfence.digests import hashed
from ringfence.models.code import is_installed, is_theirs, source_of, things, with_inner
from ringfence.models.structure import ValueLines, closed_over, entries, is_plain

DEVICES = ("cpu", "cuda", "mps")
"""Words by which programs say where to compute, which changes from machine to machine and is no part of a network."""


@final
class Reached:
    """Functions and classes of the user's that a network's code reaches, and the words that stand in it.

    Followed are names that stand in the code, from ``forward``, hooks and functions among attributes on.
    """

    def __init__(self, module: nn.Module) -> None:
        self.seen = {id(part) for part in module.modules()}
        self.functions: dict[int, FunctionType] = {}
        self.kinds: dict[int, type] = {}
        self.looked_at: set[type] = set()
        self.named: dict[int, FunctionType] = {}  # functions found by a variable: in no class and under no attribute
        self.words = {"forward", "__call__"}
        self.written: set[tuple[str, str]] = set()
        self.told: dict[int, tuple[bytes, ...]] = {}
        for thing in things(module):
            self._meet(thing)
        before = -1
        while before != (before := len(self.functions) + len(self.kinds) + len(self.words)):
            for kind in list(self.kinds.values()):
                for word in self.words & vars(kind).keys():
                    self._meet(vars(kind)[word])

    def _meet(self, thing: Any) -> None:
        """Take in a function or a class, or that of an object, and what it names; what is installed has nothing of the
        user's but what it wraps."""
        waiting, named = [thing], set[int]()
        while waiting:
            thing = _function_in(waiting.pop())
            if not isinstance(thing, FunctionType):
                self._meet_kind(thing if isinstance(thing, type) else type(thing))
            elif id(thing) not in self.functions and is_theirs(thing):
                self.functions[id(thing)] = thing
                self.words |= set(_words(thing.__code__))
                self.written |= {one for part in with_inner(thing.__code__) for one in _written_names(part)}
                found = [
                    _function_in(one) for one in (*_variables(thing).values(), getattr(thing, "__wrapped__", None))
                ]
                named |= {id(one) for one in found}
                waiting += found
            elif hasattr(thing, "__wrapped__") and id(thing) not in self.functions:
                waiting.append(thing.__wrapped__)
        self.named |= {one: self.functions[one] for one in named if one in self.functions}

    def _meet_kind(self, kind: type) -> None:
        if kind not in self.looked_at:
            self.looked_at.add(kind)  # a deep network has a few classes in many layers
            self.kinds |= {} if kind.__module__ == "builtins" or is_installed(kind) else {id(kind): kind}

    @property
    def digest(self) -> str | None:
        """Hash over variables of the user's modules and classes that the code reads, and over the files of the
        functions it calls; None where there are none.

        What the code sets or fills itself is left out, a counter or a cache, and so are lists of objects and places on
        this machine.
        """
        lines = sorted(set(self._lines()))
        return hashed(line for _, each in lines for line in each) if lines else None

    def fills(self, name: str, value: Any) -> bool:
        """Whether the code sets attributes of this name, or fills them where they are containers."""
        return self._is_written(ATTRIBUTE, name, value)

    def _lines(self) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """(where, what) is read there."""
        for function in self.named.values():
            code = function.__code__
            line = code.co_firstlineno if os.path.isfile(code.co_filename) else 0  # its file may define it again
            yield function.__qualname__, (source_of(function) or b"", str(line).encode())
        for function in self.functions.values():
            for name, value in _variables(function).items():
                if not self._is_written(VARIABLE, name, value):
                    yield from self._value(f"{function.__module__}.{function.__qualname__}: {name}", value)
        for kind in self.kinds.values():
            for word in self.words & vars(kind).keys():
                if not (word.startswith("__") or self._is_written(ATTRIBUTE, word, vars(kind)[word])):
                    yield from self._value(f"{kind.__qualname__}.{word}", vars(kind)[word])

    def _is_written(self, what: str, name: str, value: Any) -> bool:
        """Whether the code sets it, or fills it: a counter, a cache, a list of what passed."""
        filled = (FILLED + what, name) in self.written
        return (what, name) in self.written or (filled and isinstance(value, CONTAINERS))

    def _value(self, where: str, value: Any) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """Numbers, words, arrays and networks; of mappings and objects what the code names."""
        place = isinstance(value, torch.device) or (
            isinstance(value, str) and (value.startswith(DEVICES) or os.path.isabs(value))
        )
        if place or value is None or (isinstance(value, list) and not value):
            return
        if is_plain(value) or isinstance(value, torch.Tensor | np.ndarray | np.generic | nn.Module):
            if id(value) not in self.told:  # large ones may be read in many places
                lines = list(ValueLines(set(self.seen)).value("", value))
                self.told[id(value)] = (hashed(lines).encode(),) if lines else ()
            if told := self.told[id(value)]:
                yield where, told
        elif isinstance(value, dict | Namespace | SimpleNamespace) or type(value) in self.kinds.values():
            for name, one in entries(value).items():
                named = name in self.words and not self._is_written(ATTRIBUTE, name, one)
                if named and (is_plain(one) or isinstance(one, torch.Tensor | np.ndarray)):
                    yield from self._value(f"{where}.{name}", one)


def _function_in(thing: Any) -> Any:
    """The function behind a method, a property, a cache or arguments that were given before; nothing else is asked."""
    if isinstance(thing, property):
        return _function_in(thing.fget)
    if isinstance(thing, staticmethod | classmethod | MethodType):
        return _function_in(thing.__func__)
    if isinstance(thing, partial):
        return _function_in(thing.func)
    return thing.__wrapped__ if isinstance(thing, _lru_cache_wrapper) else thing


def _variables(function: FunctionType) -> dict[str, Any]:
    """Variables of its module and around it that a function reads and does not assign, and its defaults."""
    read, assigned = (set(_used(function.__code__, how)) for how in ("LOAD_GLOBAL LOAD_NAME", ASSIGNED))
    there = {name: function.__globals__[name] for name in read if name in function.__globals__}
    both = {**there, **closed_over(function)}
    return {name: both[name] for name in sorted(both) if name not in assigned and not name.startswith("__")}


ASSIGNED = "STORE_GLOBAL STORE_NAME STORE_DEREF"
VARIABLE, ATTRIBUTE, FILLED = "variable", "attribute", "filled "
FILLING = ("add", "append", "appendleft", "clear", "extend", "fill", "insert", "pop", "popitem", "setdefault", "update")
"""What lists, mappings and arrays are told that are to change; tensors by a name that ends in _."""
CONTAINERS = (list, dict, set, deque, torch.Tensor, np.ndarray)


def _written_names(code: CodeType) -> Iterator[tuple[str, str]]:
    """(what, name) of variables and attributes that the code sets, and of those in which it sets or adds entries; what
    functions within it do, not among it."""
    begun: dict[Any, tuple[str, str]] = {}  # by where an expression begins: the last name in it, of a.b[0] that of b
    for one in dis.get_instructions(code):
        begin, name = (one.positions or (None,) * 4)[0:3:2], one.argval
        asked = one.opname in ("LOAD_ATTR", "LOAD_METHOD")
        fills = asked and (name in FILLING or (name.endswith("_") and not name.endswith("__")))
        if (fills or one.opname in ("STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR")) and begin in begun:
            yield FILLED + begun[begin][0], begun[begin][1]
        if one.opname == "STORE_ATTR":
            yield ATTRIBUTE, name
        elif one.opname == "STORE_GLOBAL" or (one.opname == "STORE_DEREF" and name in code.co_freevars):
            yield VARIABLE, name
        elif asked or one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            begun[begin] = (ATTRIBUTE if asked else VARIABLE, name)


def _used(code: CodeType, how: str) -> Iterator[str]:
    """Names in instructions of these kinds, in functions within it too."""
    every = (one for part in with_inner(code) for one in dis.get_instructions(part))
    return (one.argval for one in every if one.opname in how.split())


def _words(code: CodeType) -> Iterator[str]:
    """Names, and texts by which a mapping may be asked."""
    for part in with_inner(code):
        yield from (*part.co_names, *(one for one in part.co_consts if isinstance(one, str)))

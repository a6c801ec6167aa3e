"""What the code of a network reads beside its arguments and its own attributes: variables of modules and classes."""

from __future__ import annotations

import dis
from argparse import Namespace
from collections.abc import Iterator
from functools import _lru_cache_wrapper, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from ringfence.digests import hashed
from ringfence.models.code import is_installed, source_of, things
from ringfence.models.structure import closed_over, entries, is_plain, value_lines

DEVICES = ("cpu", "cuda", "mps")
"""Words by which programs say where to compute, which changes from machine to machine and is no part of a network."""


def read_by(module: nn.Module) -> str | None:
    """Hash over variables of the user's modules and classes that ``forward`` and what it calls read, and over the files
    of the functions it calls; None where there are none.

    Followed are names that stand in the code, from ``forward``, hooks and functions among attributes on. What the code
    assigns itself, a counter say, is left out, and so are lists of objects, in which programs collect what passes.
    """
    found = _Reached(module)
    lines = sorted(set(found.lines()))
    return hashed(line for _, each in lines for line in each) if lines else None


class _Reached:
    """Functions and classes of the user's that a network's code reaches, and the words that stand in it."""

    def __init__(self, module: nn.Module) -> None:
        self.seen = {id(part) for part in module.modules()}
        self.functions: dict[int, FunctionType] = {}
        self.kinds: dict[int, type] = {}
        self.looked_at: set[type] = set()
        self.named: dict[int, FunctionType] = {}  # functions found by a variable: in no class and under no attribute
        self.words = {"forward", "__call__"}
        for thing in things(module):
            self._meet(thing)
        before = -1
        while before != (before := len(self.functions) + len(self.kinds) + len(self.words)):
            for kind in list(self.kinds.values()):
                for word in self.words & vars(kind).keys():
                    self._meet(vars(kind)[word])

    def _meet(self, thing: Any) -> FunctionType | None:
        """Take in a function or a class, or that of an object; what is installed has nothing of the user's."""
        thing = _function_in(thing)
        if isinstance(thing, FunctionType):
            if id(thing) not in self.functions and source_of(thing) is not None:
                self.functions[id(thing)] = thing
                self.words |= set(_words(thing.__code__))
                for value in (*_variables(thing).values(), getattr(thing, "__wrapped__", None)):
                    if (function := self._meet(value)) is not None:
                        self.named[id(function)] = function
            return self.functions.get(id(thing))
        kind = thing if isinstance(thing, type) else type(thing)
        if kind not in self.looked_at:
            self.looked_at.add(kind)  # a deep network has a few classes in many layers
            self.kinds |= {} if kind.__module__ == "builtins" or is_installed(kind) else {id(kind): kind}
        return None

    def lines(self) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """(where, what) is read there."""
        for function in self.named.values():
            code = function.__code__
            line = code.co_firstlineno if Path(code.co_filename).is_file() else 0  # its file may define it again
            yield function.__qualname__, (source_of(function) or b"", str(line).encode())
        for function in self.functions.values():
            for name, value in _variables(function).items():
                yield from self._value(f"{function.__module__}.{function.__qualname__}: {name}", value)
        for kind in self.kinds.values():
            for word in self.words & vars(kind).keys():
                if not word.startswith("__"):
                    yield from self._value(f"{kind.__qualname__}.{word}", vars(kind)[word])

    def _value(self, where: str, value: Any) -> Iterator[tuple[str, tuple[bytes, ...]]]:
        """Numbers, words, arrays and networks; of mappings and objects what the code names."""
        place = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith(DEVICES))
        if place or value is None or (isinstance(value, list) and not value):
            return
        if is_plain(value) or isinstance(value, torch.Tensor | np.ndarray | np.generic | nn.Module):
            if told := tuple(value_lines(where, value, set(self.seen))):
                yield where, told
        elif isinstance(value, dict | Namespace | SimpleNamespace) or type(value) in self.kinds.values():
            for name, one in entries(value).items():
                if name in self.words and (is_plain(one) or isinstance(one, torch.Tensor | np.ndarray)):
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
    return {name: both[name] for name in sorted(both) if name not in assigned}


ASSIGNED = "STORE_GLOBAL STORE_NAME STORE_DEREF"


def _used(code: CodeType, how: str) -> Iterator[str]:
    """Names in instructions of these kinds, in functions within it too."""
    for one in dis.get_instructions(code):
        if one.opname in how.split():
            yield one.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used(constant, how)


def _words(code: CodeType) -> Iterator[str]:
    """Names, and texts by which a mapping may be asked."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)
        elif isinstance(constant, str):
            yield constant

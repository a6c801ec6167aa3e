"""Names that stand in a function of a network, and of which of them the values can reach its scores."""

from __future__ import annotations

import ast
import builtins
import linecache
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, final

from ringfence.models.code import codes_in, is_source_of

FILLING = ("add", "append", "appendleft", "clear", "extend", "fill", "insert", "pop", "popitem", "setdefault", "update")
"""What lists, mappings and arrays are told that are to change; tensors by a name that ends in _."""
_PURE = (len, int, float, str, bool, round, abs, repr, time.time, time.monotonic, time.perf_counter, time.process_time)
_PRINTING = (print, warnings.warn, *(getattr(logging, name) for name in ("debug", "info", "warning", "error", "log")))
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_LOGGERS = (logging.Logger, logging.LoggerAdapter)


@dataclass
class Mentions:
    """whole: names whose value is used; way: those of which only what is named next, in ``a.b["c"]`` a and b; asked:
    those of which a method is called; idle: those that are set, filled, counted up or printed; imported: modules."""

    whole: set[str] = field(default_factory=set)
    way: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)

    def __ior__(self, other: Mentions) -> Mentions:
        for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True):
            mine |= theirs
        return self

    @property
    def words(self) -> set[str]:
        """All that is read."""
        return self.whole | self.way | self.asked


def mentions(function: FunctionType) -> Mentions:
    """Of a function and those within it; where nobody has its source, every name may be used in every way."""
    found, nodes = _Reader(function), _nodes(function.__code__)
    with suppress(RecursionError):  # sums of hundreds of terms
        for node in nodes:
            found.read(None, *(node.body if isinstance(node.body, list) else [node.body]))
        if nodes:
            return found.found
    return Mentions(whole={name for one in codes_in(function.__code__) for name in _every(one)})


def _every(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_freevars)
    yield from (one for one in code.co_consts if isinstance(one, str))


def _nodes(code: CodeType) -> list[_Function]:
    """Where its source says it, several where lambdas share a line; none where there is no source of what runs."""
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    return _functions_in(text).get((code.co_firstlineno, code.co_name), []) if is_source_of(text, code) else []


@lru_cache(maxsize=64)
def _functions_in(text: str) -> dict[tuple[int, str], list[_Function]]:
    """All of a source, which can be compiled, by first line and name."""
    found: dict[tuple[int, str], list[_Function]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _Function):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            found.setdefault((first, getattr(node, "name", "<lambda>")), []).append(node)
    return found


_EVERY = object()
_ALONE = ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.IfExp | ast.Tuple | ast.List | ast.Constant
_TRANSPARENT = _ALONE | ast.JoinedStr | ast.FormattedValue
"""What nothing but its value comes of."""


@final
class _Reader(ast.NodeVisitor):
    """Sorts the names of one function.

    idle: the name, or with _EVERY all names, whose value is about to be only printed or to be counted up.
    """

    def __init__(self, function: FunctionType) -> None:
        self.found = Mentions()
        self._globals = function.__globals__
        self._local = {name for one in codes_in(function.__code__) for name in (*one.co_varnames, *one.co_cellvars)}
        self._idle: object = None

    def visit(self, node: ast.AST) -> None:
        """One node; behind what may do more than to give a value nothing is idle."""
        before = self._idle
        names = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        if not (names or isinstance(node, _TRANSPARENT) or (isinstance(node, ast.Call) and self._is(node.func, _PURE))):
            self._idle = None
        self._names(node) if names else super().visit(node)
        self._idle = before

    def _names(self, node: ast.AST) -> None:
        names, rest = _chain(node)
        if isinstance(rest, ast.Subscript):  # by what is not known before: the value before it is used
            self._names(rest.value)
            self.read(None, rest.slice)
        elif rest is not None:
            self.visit(rest)
        if names:
            self._note(names)

    def _note(self, names: list[str], asked: bool = False) -> None:
        """The names of a chain, of which the last is used; asked: the last is a method of the one before."""
        *way, last = names
        if asked and way:
            self.found.asked.add(way.pop())
        self.found.way.update(way)
        (self.found.idle if self._idle in (last, _EVERY) else self.found.whole).add(last)

    def read(self, idle: object, *nodes: ast.AST) -> None:
        """Nodes, in which this is idle."""
        before, self._idle = self._idle, idle
        for node in nodes:
            self.visit(node)
        self._idle = before

    def visit_Constant(self, node: ast.Constant) -> None:
        """A text may be the name of an attribute that is asked for."""
        if isinstance(node.value, str):
            (self.found.idle if self._idle is _EVERY else self.found.whole).add(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        """A method is named as such; arguments after two stars are used as they are."""
        names, rest = _chain(node.func)
        given: list[ast.AST] = [*node.args, *node.keywords]
        key = given[0].value if given and isinstance(given[0], ast.Constant) else None
        if rest is not None:
            self.visit(node.func)
        elif names[-1] == "get" and isinstance(key, str):
            self._note([*names[:-1], key])
            given.pop(0)
        else:
            self._note(names, asked=True)
        for one in given:
            self.visit(one)

    def visit_Import(self, node: ast.Import) -> None:
        """Modules, which the function knows by no variable."""
        self.found.imported.update(one.name for one in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """The module, and those in it, if they are some; from the package of the function."""
        package = self._globals.get("__package__") or ""
        place = ".".join(filter(None, [package.rsplit(".", node.level - 1)[0] if node.level else "", node.module]))
        self.found.imported.update([place, *(f"{place}.{one.name}" for one in node.names)])

    def visit_Assign(self, node: ast.Assign) -> None:
        """What is set from itself is not used by that."""
        self._set(node.targets, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """As if it were written out."""
        self._set([node.target], node.value)

    def _set(self, targets: list[ast.expr], value: ast.AST) -> None:
        places = [self._place(target) for target in targets]
        for target, place in zip(targets, places, strict=True):
            self._write(target, place)
        self.read(places[0] if len(places) == 1 else None, value)

    def _write(self, target: ast.AST, place: str | None) -> None:
        """The place is idle; what stands before it and in brackets is not."""
        if place is None:
            self.read(None, target)
            return
        while isinstance(target, ast.Subscript):
            self.read(None, target.slice)
            target = target.value
        self.read(place, target)

    def _place(self, target: ast.AST) -> str | None:
        """The last name of something that outlives the call: of a network, a class, a module or around the function.

        Not of a variable of the function, nor of its arguments: those may be other names of what is used.
        """
        while isinstance(target, ast.Subscript):
            target = target.value
        names, rest = _chain(target)
        if isinstance(rest, ast.Call) and names:  # type(self).calls
            return names[-1] if self._is(rest.func, (type,)) else None
        if rest is not None or not names or (names[0] in self._local and (names[0] != "self" or len(names) == 1)):
            return None
        return names[-1]

    def visit_Expr(self, node: ast.Expr) -> None:
        """What comes of it is dropped: filling fills, printing prints."""
        call = node.value
        filled = call.func if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        place = self._place(filled.value) if filled is not None and _fills(filled.attr) else None
        if isinstance(call, ast.Call) and filled is not None and place is not None:
            self._write(filled.value, place)
            self.found.whole.add(filled.attr)
            self.read(None, *call.args, *call.keywords)
        elif isinstance(call, ast.Call) and self._prints(call):
            self.read(_EVERY, *call.args, *(one.value for one in call.keywords))
        elif not isinstance(call, ast.Constant):  # else what a function says of itself
            self.visit(call)

    def visit_If(self, node: ast.If) -> None:
        """What decides about printing alone, or about itself, is not used by that."""
        written: set[object] = {place for one in (*node.body, *node.orelse) for place in self._nothing_but(one)} or {
            _EVERY
        }
        self.read(written.pop() if len(written) == 1 else None, node.test)
        self.read(None, *node.body, *node.orelse)

    def _nothing_but(self, node: ast.stmt) -> set[str | None]:
        """The places that it writes, where it does nothing but write and print; None among them where it does more."""
        calls = [one for one in ast.walk(node) if isinstance(one, ast.Call | ast.NamedExpr | ast.Await | ast.Yield)]
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and self._prints(node.value):
            calls.remove(node.value)
            places = set[str | None]()
        elif isinstance(node, ast.Assign | ast.AugAssign):
            places = {self._place(one) for one in (node.targets if isinstance(node, ast.Assign) else [node.target])}
        else:
            return {None}
        pure = all(isinstance(one, ast.Call) and self._is(one.func, _PURE) for one in calls)
        return places if pure else {None}

    def _prints(self, call: ast.Call) -> bool:
        of = self._known(call.func.value) if isinstance(call.func, ast.Attribute) else None
        return self._is(call.func, _PRINTING) or isinstance(of, _LOGGERS)

    def _is(self, node: ast.AST, known: tuple[Any, ...]) -> bool:
        found = self._known(node)
        return any(found is one for one in known)

    def _known(self, node: ast.AST) -> Any:
        """What a name stands for, if nothing is asked to find out."""
        if isinstance(node, ast.Name) and node.id not in self._local:
            return self._globals.get(node.id, getattr(builtins, node.id, None))
        of = self._known(node.value) if isinstance(node, ast.Attribute) else None
        return vars(of).get(node.attr) if isinstance(node, ast.Attribute) and isinstance(of, ModuleType) else None


def _fills(name: str) -> bool:
    return name in FILLING or (name.endswith("_") and not name.endswith("__"))


def _chain(node: ast.AST) -> tuple[list[str], ast.AST | None]:
    """Names of ``a.b["c"]``, and what they are asked of where that is no name."""
    names: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(key := node.slice, ast.Constant) and type(key.value) is str:
            names.insert(0, key.value)
        else:
            return ([node.id, *names], None) if isinstance(node, ast.Name) else (names, node)
        node = node.value

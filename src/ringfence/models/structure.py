"""What a network of a program holds beside its weights and its code, as far as a digest can see it."""

from __future__ import annotations

import inspect
import io
import os
import pickletools
import re
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, final
from zipfile import ZipFile

import numpy as np
import torch
from torch import nn

from ringfence.digests import hashed
from ringfence.models.code import is_installed, is_theirs, source_of

_DEEPEST = 6
"""Containers within containers that are looked into."""

Fills = Callable[[str, Any], bool]
"""Whether code sets an attribute of this name, or fills it where it has this value: a counter, a cache."""


def structure(module: nn.Module, fills: Fills | None = None) -> str:
    """What a network of a program is made of beside its weights: names of its classes, installed ones too, and what
    their instances hold: numbers, words, functions, and tensors that no state dict has.

    A network that a spec names is told by its code; one that a program made may be any composition of torch's layers.
    fills: attributes that are left out, because the network's own code sets or fills them.
    """
    return hashed(ValueLines({id(part) for part in module.modules()}, fills).network(module))


_OF_TORCH = frozenset(vars(nn.Module()))
"""What every module has: weights, parts and hooks, which are told by themselves."""


@final
class ValueLines:
    """Values as lines to hash. seen: objects that were looked into; fills: attributes that are left out."""

    def __init__(self, seen: set[int], fills: Fills | None = None) -> None:
        self._seen, self._fills = seen, fills

    def network(self, module: nn.Module) -> Iterator[bytes]:
        """Its parts, each with what it holds."""
        scripted, first = "", dict[int, str]()
        # A list, so that no part is gone and its number another's.
        for name, part in list(module.named_modules(remove_duplicate=False)):
            if first.setdefault(id(part), name) != name:  # a layer that stands in several places
                yield f"{name} is {first[id(part)]}".encode()
                continue
            yield from self._part(name, part)
            if isinstance(part, torch.jit.ScriptModule) and not (scripted and name.startswith(scripted)):
                scripted = f"{name}." if name else "."  # what it is made of is compiled with it
                yield from script_lines(part)

    def _part(self, name: str, part: nn.Module) -> Iterator[bytes]:
        yield f"{name}: {type(part).__module__}.{type(part).__qualname__}".encode()
        unsaved = {key: part._buffers[key] for key in part._non_persistent_buffers_set}
        library = is_installed(type(part))
        for key, value in sorted(_unfilled({**vars(part), **unsaved}, None if library else self._fills).items()):
            # Names that libraries keep to themselves: nobody can look into what is under them.
            closed = key in _OF_TORCH or (library and key.startswith("_"))
            if key != "training" and not key.startswith("_torchdynamo"):  # those tell of the process that compiled it
                yield from self.value(key, value, closed=closed)
        for place, hook in enumerate((*part._forward_hooks.values(), *part._forward_pre_hooks.values())):
            yield from self.value(f"hook {place}", hook)

    def value(self, key: str, value: Any, depth: int = 0, closed: bool = False) -> Iterator[bytes]:
        """A value by its name: numbers, arrays, functions with what they close over, networks that are no part of the
        one that holds them, objects of the user's own classes, and containers of those.

        Objects of installed classes are passed over: theirs may say where a file lay, or when. So is what lies deeper
        than anyone writes. closed: containers and objects are not looked into.
        """
        if isinstance(value, torch.Tensor):
            yield f"{key}={value.dtype}".encode()
            with suppress(RuntimeError):  # sparse, nested, or without values
                yield f"{tuple(value.shape)}".encode()
                there = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
                yield there.reshape(-1).view(torch.uint8).numpy().tobytes()
        elif isinstance(value, np.ndarray | np.generic) and not is_plain(value) and value.dtype != object:
            yield f"{key}={value.dtype}{value.shape}".encode()
            yield value.tobytes()
        elif inspect.isroutine(value):
            yield f"{key}={getattr(value, '__module__', '')}.{value.__qualname__}{_place(value)}".encode()
            yield from self._values(key, closed_over(value), depth)
        elif is_plain(value):
            yield f"{key}={value!r}".encode()
        elif isinstance(value, type | np.ufunc):
            yield f"{key}={getattr(value, '__module__', '')}.{getattr(value, '__qualname__', value.__name__)}".encode()
        elif isinstance(value, partial):
            yield from self.value(key, value.func, depth + 1)
            yield from self._values(key, {**dict(enumerate(value.args)), **value.keywords}, depth)
        elif not closed and id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, nn.Module):  # in a list, say: neither its weights nor its mode are the network's
                yield from self.network(value)
                yield from self._values(key, value.state_dict(), depth)
            else:
                yield from self._values(key, entries(value, self._fills), depth)

    def _values(self, key: str, inside: Mapping[Any, Any], depth: int) -> Iterator[bytes]:
        for place, (name, value) in enumerate(inside.items()) if depth < _DEEPEST else ():
            yield from self.value(f"{key}.{name if is_plain(name) else place}", value, depth + 1)


def entries(container: Any, fills: Fills | None = None) -> Mapping[Any, Any]:
    """What a container or an object of a user's class holds, by name or place; of anything else nothing."""
    if isinstance(container, Mapping):
        return container
    if isinstance(container, np.ndarray):
        container = container.tolist()
    if isinstance(container, set | frozenset):
        container = sorted((one for one in container if is_plain(one)), key=repr)
    if isinstance(container, list | tuple | deque):
        return dict(enumerate(container))
    if isinstance(container, Enum):
        return {container.name: container.value}
    if is_installed(type(container)) and not isinstance(container, Namespace | SimpleNamespace):
        return {}
    every = [vars(kind).get("__slots__", ()) for kind in type(container).__mro__]
    names = [name for some in every for name in ([some] if isinstance(some, str) else some)]
    slots = {name: getattr(container, name) for name in names if hasattr(container, name)}
    return _unfilled({**slots, **getattr(container, "__dict__", {})}, fills)


def _unfilled(attributes: Mapping[str, Any], fills: Fills | None) -> Mapping[str, Any]:
    return {name: value for name, value in attributes.items() if fills is None or not fills(name, value)}


def script_lines(module: torch.jit.ScriptModule) -> Iterator[bytes]:
    """What a network in TorchScript is: its code, and the constants and attributes that no state dict has.

    Read from what torch would save, without where its source lay, and without the numbers by which a process tells
    classes of one name apart.
    """
    saved = io.BytesIO()
    torch.jit.save(module, saved)
    with ZipFile(saved) as archive:
        entries = sorted((_unnumbered(name), name) for name in archive.namelist())
        for told, name in entries:
            if not re.search(r"/(traced_inputs|\.data|version|byteorder)|debug_pkl$", name):
                yield told.encode()
                yield from _unpickled(archive.read(name)) if name.endswith(".pkl") else _plain_entry(archive, name)


def _plain_entry(archive: ZipFile, name: str) -> list[bytes]:
    content = archive.read(name)
    return [_unnumbered(content.decode()).encode() if name.endswith(".py") else content]


def _unpickled(content: bytes) -> Iterator[bytes]:
    """The instructions of a pickle, none of which is followed."""
    for code, argument, _ in pickletools.genops(content):
        yield _unnumbered(f"{code.name} {argument!r}").encode()


def _unnumbered(text: str) -> str:
    return re.sub(r"[./]?___torch_mangle_\d+", "", text)


def _place(function: Any) -> str:
    """Where a function stands in its file, if others may have its name: of lambdas, and of functions in functions.

    Of one without a file what it does, for a notebook's cell has other lines whenever a remark is added.
    """
    bare = inspect.unwrap(function)
    code = getattr(bare, "__code__", None)
    if code is None or "<" not in function.__qualname__ or not is_theirs(bare):
        return ""
    if not os.path.isfile(code.co_filename):
        return f" {source_of(bare)!r}"
    columns = [begin for _, _, begin, end in code.co_positions() if begin is not None and end]
    return f" {code.co_firstlineno}:{min(columns, default=0)}"


def closed_over(function: Any) -> dict[str, Any]:
    """What a function reads beside its arguments: variables around it, defaults, as in ``lambda x, k=k: k * x``, and
    the object of which it is a method."""
    found: dict[str, Any] = dict(getattr(function, "__kwdefaults__", None) or {})
    found |= {f"default {place}": one for place, one in enumerate(getattr(function, "__defaults__", None) or ())}
    if inspect.ismethod(function):
        found["self"] = function.__self__
    if inspect.isfunction(function):
        for name, variable in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # not assigned yet
                found[name] = variable.cell_contents
    return found


def is_plain(value: Any, depth: int = 0) -> bool:
    """Whether its repr says all of it: numbers and words, and lists of them."""
    deeper = depth < _DEEPEST and isinstance(value, list | tuple)
    inside = deeper and all(is_plain(one, depth + 1) for one in value)
    told = bool | int | float | complex | str | bytes | bytearray | range | slice | Decimal | torch.dtype | torch.device
    return inside or value is None or isinstance(value, told)

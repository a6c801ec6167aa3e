"""Values of a network and their gradient in its input, as one compiled function whose own derivative is compiled too.

torch.compile has no derivative of a compiled network's backward. Here the gradient is taken within the function that is
compiled: to the compiler it is a part of the forward, and everything between convolutions becomes a few kernels.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ringfence.classifiers.members import alike
from ringfence.sampling.preparing import compiled
from ringfence.training.compared import check_gradients
from ringfence.training.narrow import narrow_options
from ringfence.training.objectives.base import as_trained, eager
from ringfence.training.objectives.second_order import SecondOrder

Values = Callable[[Tensor, Tensor], Tensor]
"""Scores (B, K) and labels (B,) -> what is differentiated (B,)."""


class Differentiated(NamedTuple):
    """Scores (B, K), values (B,), and the gradient of the values' sum in the input (B, *shape)."""

    scores: Tensor
    values: Tensor
    gradient: Tensor


def differentiated(member: nn.Module, noisy: Tensor, labels: Tensor, values: Values) -> Differentiated:
    """Of a member at noisy inputs; all three can be differentiated once more, by the member's weights.

    By compiled code on CUDA where the member is compiled.
    """
    network = eager(member)
    if network is as_trained(member) or not noisy.is_cuda:
        return _plain(network, noisy, labels, values)
    return _fast(network, noisy, labels, values)


def _plain(network: Callable[[Tensor], Tensor], noisy: Tensor, labels: Tensor, values: Values) -> Differentiated:
    noisy = noisy.detach().requires_grad_()
    with SecondOrder() as second:
        scores = network(noisy)
    found = values(scores, labels)
    return Differentiated(scores, found, second.gradient(found.sum(), noisy))


@dataclass(eq=False)
class _Known:
    """Code compiled for networks that differ from this one in weights alone; run: None where they failed or erred."""

    shell: nn.Module
    kind: tuple[Any, ...]
    run: Any

    def __call__(self, network: nn.Module, noisy: Tensor, labels: Tensor) -> Differentiated:
        return Differentiated(*self.run(_KNOWN.index(self), noisy, labels, *_tensors(network).values()))


_KNOWN: list[_Known] = []
_CHECKED: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], _Known]] = WeakKeyDictionary()
"""By network, and by what is asked of it."""


def _fast(network: nn.Module, noisy: Tensor, labels: Tensor, values: Values) -> Differentiated:
    kind = noisy.shape, values, torch.is_autocast_enabled(noisy.device.type), network.training
    checked = _CHECKED.setdefault(network, {})
    if kind not in checked:
        shared = next((one for one in _KNOWN if one.kind == kind and alike(network, one.shell)), None)
        known = shared or _compiled(network, kind, values)
        _check(known, network, noisy, labels, values)
        checked[kind] = known
    known = checked[kind]
    return known(network, noisy, labels) if known.run else _plain(network, noisy, labels, values)


def _check(known: _Known, network: nn.Module, noisy: Tensor, labels: Tensor, values: Values) -> None:
    """Compare each of the three with the plain network's: in their sum one could be lost in another's rounding.

    What differs, or cannot be compiled, runs as it is.
    """

    def plain(part: int, x: Tensor) -> Tensor:
        return _plain(network, x, labels, values)[part]

    def fast(part: int, x: Tensor) -> Tensor:
        return known(network, x, labels)[part]

    try:
        for part in range(3 if known.run else 0):
            check_gradients(network, partial(plain, part), partial(fast, part), noisy)
    except Exception as error:  # compilers fail in many ways, and what they made may be wrong
        told = f"gradients of gradients run uncompiled: {type(error).__name__}: {str(error)[:200]}"
        warnings.warn(told, stacklevel=2)
        known.run = None


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return dict([*network.named_parameters(), *network.named_buffers()])


def _compiled(network: nn.Module, kind: tuple[Any, ...], values: Values) -> _Known:
    """A function of tensors alone; the compiler differentiates through it without having read it."""
    shell = copy.deepcopy(network).to("meta")  # its own tensors are never used
    names = tuple(_tensors(network))

    def whole(noisy: Tensor, labels: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        return tuple(_plain(lambda x: functional_call(shell, given, (x,)), noisy, labels, values))

    as_one = torch.compiler.allow_in_graph(whole)  # type: ignore[no-untyped-call]

    def numbered(number: int, *tensors: Tensor) -> Any:
        # Compilers keep what they made by the code and by what it reads: not by whom it calls, but by a number.
        return as_one(*tensors) if number >= 0 else None

    _KNOWN.append(_Known(shell, kind, compiled(numbered, options=narrow_options())))
    return _KNOWN[-1]


@cache
def _branch(main: Any, number: int) -> Any:
    """The same ones in every step: torch keeps memory for each stream that it has seen, and would soon for thirty."""
    return torch.cuda.Stream(main.device)  # type: ignore[no-untyped-call]


class Branches:
    """``with Branches(x) as branches:`` members work on x beside each other, each ``with branches.next():``.

    On CUDA each has a stream of its own; what one has made is told by ``leave``. torch differentiates on the streams
    where it computed.
    """

    def __init__(self, x: Tensor) -> None:
        self._x, self._streams = x, list[Any]()
        self._main: Any = torch.cuda.current_stream(x.device) if x.is_cuda else None
        self._begun: Any = self._main.record_event() if self._main is not None else None

    def __enter__(self) -> Branches:
        return self

    def next(self) -> Any:
        """Another one, which begins where the main one was."""
        if self._main is None:
            return nullcontext()
        stream = _branch(self._main, len(self._streams))
        stream.wait_event(self._begun)
        self._x.record_stream(stream)
        self._streams.append(stream)
        return torch.cuda.stream(stream)

    def leave(self, *tensors: Tensor) -> None:
        """What was made on a branch and will be used on the main one."""
        for one in tensors if self._main is not None else ():
            one.record_stream(self._main)

    def __exit__(self, *told: object) -> None:
        for stream in self._streams:
            self._main.wait_stream(stream)

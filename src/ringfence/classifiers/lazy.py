"""Lazy modules: their weights exist only after a first batch, so that nothing can be said about them before."""

from __future__ import annotations

from itertools import chain

from torch import nn
from torch.nn.parameter import is_lazy

from ringfence.errors import RingfenceError


def refuse_lazy(module: nn.Module, argument: str, kind: type[RingfenceError]) -> None:
    """Refuse a module that has weights without a shape: each copy of it would draw its own."""
    named = chain(module.named_parameters(), module.named_buffers())
    first = next((name for name, value in named if is_lazy(value)), None)
    if first is not None:
        received = f"'{first}' of a lazy module that has seen no input"
        raise kind(argument, "must have all its weights", received, "Run one batch through it first: model(x).")

"""What becomes of a network's graph where layers are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from ringfence.classifiers.exchanging import exchange


def run_exchanged(model: nn.Module, x: Tensor) -> tuple[list[str], Tensor]:
    """What is called in the graph that torch traces, after the exchange, and what it computes then."""
    called: list[str] = []

    def noted(traced: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        exchange(traced.graph)
        traced.graph.lint()
        traced.recompile()
        called.extend(str(getattr(node.target, "__name__", node.target)) for node in traced.graph.nodes)
        return traced.forward

    torch._dynamo.reset()
    with torch.inference_mode():
        found = torch.compile(model, backend=noted, dynamic=False)(x)
    return called, found

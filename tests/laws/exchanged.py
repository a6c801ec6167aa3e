"""What becomes of a network's graph where layers are exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from ringfence.classifiers.exchanging import exchange
from ringfence.sampling import Forward, ForwardPlan
from ringfence.sampling.check import checked_forward


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


def assert_exchanged_is_the_network(
    network: nn.Module, plan: ForwardPlan, shape: tuple[int, ...], on: torch.device
) -> None:
    """The check keeps the plan, and scores are about as near to float32's as those of the plain network in bf16."""
    found = checked_forward(network, plan, on, 10, lambda count: torch.rand(count, *shape, device=on))
    assert found.forward.plan == plan
    rows = found.sample[:64]
    exact, plain = (Forward(network, ForwardPlan(64, one), on, 10)(rows).scores for one in ("fp32", "bf16"))
    assert (found.answer.scores[:64] - exact).norm() <= 1.5 * (plain - exact).norm()

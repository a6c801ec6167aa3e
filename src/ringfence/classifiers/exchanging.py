"""Layers in forms for GPUs, exchanged in graphs that are about to be compiled.

The exact GELU reads and writes a transformer's largest activations, and its erf takes longer than that: by powers of
two it does not. On Hopper attention to few keys is a kernel of ours (attention.py), and so is what small convolutional
networks begin with (pooling.py). All are found in the graph that torch.compile has traced, whatever modules they come
from. Sums are rounded at other places: another form of the network, checked as all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node, symbolic_trace
from torch.nn.functional import gelu, scaled_dot_product_attention

from ringfence.classifiers.attention import SCALE, fits
from ringfence.classifiers.fused import is_hopper, why_not
from ringfence.classifiers.pooling import PAIR, pair_ending

POWERS = (
    -1.0000669956207275,
    -1.150291919708252,
    -0.4606463313102722,
    -0.05207822099328041,
    0.007731737568974495,
    -0.0007658047252334654,
    4.4227457692613825e-05,
    -1.113469465963135e-06,
)
"""p, by powers of t: 2^p(t) is Phi(-t) up to 5e-5 of it, as far as t = 8.5, where it is 1e-17; beyond that nearly 0.
The polynomial whose largest error is smallest there (tools/gelu_powers.py)."""


def gelu_by_powers(x: Tensor) -> Tensor:
    """x Phi(x) in bf16, by way of float32; as torch has it on CUDA, +inf stays, and -inf and NaN become NaN."""
    wide = x.float()
    size = wide.abs()
    power = size * POWERS[-1] + POWERS[-2]
    for one in POWERS[-3::-1]:
        power = power * size + one
    tail = torch.exp2(power)
    return (wide * torch.where(wide < 0, tail, 1 - tail)).bfloat16()


@cache
def exchanging(mode: str | None) -> Callable[[GraphModule, Sequence[Any]], Any]:
    """A backend of torch.compile that exchanges, and leaves the rest to torch's own in this mode."""

    def compile_exchanged(traced: GraphModule, inputs: Sequence[Any]) -> Any:
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        exchange(traced.graph)
        traced.recompile()
        return compile_fx(traced, inputs, config_patches=list_mode_options(mode) if mode else {})

    return compile_exchanged


def exchange(graph: Graph) -> None:
    """Exchange what can be, in place."""
    for node in list(graph.nodes):
        value = node.meta.get("example_value")
        if not isinstance(value, Tensor) or value.dtype != torch.bfloat16 or not _placed(value):
            continue
        if node.target is gelu and len(node.args) == 1 and node.kwargs.get("approximate", "none") == "none":
            formula = symbolic_trace(gelu_by_powers).graph
            with graph.inserting_before(node):
                found = graph.graph_copy(formula, {next(iter(formula.nodes)): node.args[0]})
            _replace(graph, node, found)
        elif node.target is scaled_dot_product_attention and _has_hopper(value.device) and (given := _alone(node)):
            with graph.inserting_before(node):
                found = graph.call_function(torch.ops.ringfence.attention.default, given)
            _replace(graph, node, found)
        elif (pair := pair_ending(node)) and _has_kernels(value.device):
            first, second = pair
            weights = (first.weight, first.bias, second.weight, second.bias)
            with graph.inserting_before(node):
                found = graph.call_function(PAIR, (first.x, *weights, first.edge, second.edge))
            _replace(graph, node, found)
            for old in reversed((*first.nodes, *second.nodes[:-1])):
                graph.erase_node(old)


def _alone(node: Node) -> tuple[Any, ...] | None:
    """Query, key and value, where attention is asked for nothing else and the kernel is for them."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    asked: list[Any] = [*node.args, *(node.kwargs.get(name) for name in names[len(node.args) :])]
    mask, dropout, causal, scale = asked[3:7]
    plain = mask is None and not dropout and not causal and scale in (None, SCALE)
    values: list[Any] = [one.meta.get("example_value") if isinstance(one, Node) else None for one in asked[:3]]
    known = all(isinstance(value, Tensor) for value in values)
    return tuple(asked[:3]) if plain and known and fits(*values) else None


def _replace(graph: Graph, node: Node, found: Any) -> None:
    found.meta.update(node.meta)
    node.replace_all_uses_with(found)
    graph.erase_node(node)


def _placed(value: Tensor) -> bool:
    return value.is_cuda


def _has_hopper(device: torch.device) -> bool:
    return is_hopper(device) and _has_kernels(device)


def _has_kernels(device: torch.device) -> bool:
    return why_not(device) is None

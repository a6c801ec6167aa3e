"""Layers in forms for GPUs, exchanged in graphs that are about to be compiled.

The exact GELU reads and writes a transformer's largest activations, and its erf takes longer than that: by powers of
two it does not. On Hopper attention to few keys is a kernel of ours (attention.py), and so is what small convolutional
networks begin with (pooling.py). All are found in the graph that torch.compile has traced, whatever modules they come
from. Sums are rounded at other places: another form of the network, checked as all are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node, symbolic_trace
from torch.nn.functional import gelu, max_pool2d, scaled_dot_product_attention

from ringfence.classifiers.architectures.lenet import ONE_LAYER
from ringfence.classifiers.attention import SCALE, fits
from ringfence.classifiers.fused import is_hopper, why_not
from ringfence.classifiers.joining import RELUS
from ringfence.classifiers.pooling import PAIR, Layers, layers_of

POOLS = (max_pool2d, torch.max_pool2d)
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
        value = _value(node)
        if value is None or value.dtype != torch.bfloat16 or not _on_cuda(value):
            continue
        old: tuple[Node, ...] = (node,)
        with graph.inserting_before(node):
            if node.target is gelu and len(node.args) == 1 and node.kwargs.get("approximate", "none") == "none":
                formula = symbolic_trace(gelu_by_powers).graph
                found: Any = graph.graph_copy(formula, {next(iter(formula.nodes)): node.args[0]})
            elif (given := _attention_alone(node)) and _has_hopper(value.device):
                found = graph.call_function(torch.ops.ringfence.attention.default, given)
            elif (pair := _pair_ending(node)) and _has_kernels(value.device) and pair[2].warps(_room(value.device)):
                first, second, _ = pair
                weights = (first.weight, first.bias, second.weight, second.bias)
                found = graph.call_function(PAIR, (first.x, *weights, first.edge, second.edge))
                old = (*first.nodes, *second.nodes)
            else:
                continue
        found.meta.update(node.meta)
        node.replace_all_uses_with(found)
        for one in reversed(old):
            graph.erase_node(one)


def _attention_alone(node: Node) -> tuple[Any, ...] | None:
    """Query, key and value, where attention is asked for nothing else and the kernel is for them."""
    names = "query key value attn_mask dropout_p is_causal scale enable_gqa"
    if (asked := _call_arguments(node, (scaled_dot_product_attention,), names)) is None:
        return None
    mask, dropout, causal, scale = asked[3:7]
    plain = mask is None and not dropout and not causal and scale in (None, SCALE)
    values = [_value(one) for one in asked[:3]]
    known = all(one is not None for one in values)
    return tuple(asked[:3]) if plain and known and fits(*values) else None


class _Layer(NamedTuple):
    """Convolution, ReLU and 2 x 2 maximum: their nodes, one right behind the other, and what they are given."""

    nodes: tuple[Node, ...]
    x: Any
    weight: Any
    bias: Any
    edge: int


def _pair_ending(node: Node) -> tuple[_Layer, _Layer, Layers] | None:
    """Two layers whose last node this is, that stand together and of which nobody reads what is between; their shapes.

    They will stand where the last one does: what came between might change their input in place.
    """
    second = _layer_ending(node)
    first = _layer_ending(second.x) if second else None
    if first is None or second is None:
        return None
    nodes = (*first.nodes, *second.nodes)
    together = all(one is other.prev and list(one.users) == [other] for one, other in pairwise(nodes))
    given = (first.x, first.weight, first.bias, second.weight, second.bias)
    x, weight1, bias1, weight2, bias2 = values = [_value(one) for one in given]
    if not together or any(one is None for one in values):
        return None
    layers = layers_of(x, weight1, weight2, first.edge, second.edge)
    return (first, second, layers) if layers and bias1.dtype == bias2.dtype == torch.bfloat16 else None


def _layer_ending(node: Any) -> _Layer | None:
    """The layer whose last node this is: LeNet's operator, or torch's three."""
    if isinstance(node, Node) and node.target in (ONE_LAYER, ONE_LAYER.default):
        given: Any = node.args
        return _Layer((node,), *given)
    pool = _call_arguments(node, POOLS, "input kernel_size stride padding dilation ceil_mode return_indices")
    rectified = _call_arguments(pool[0], RELUS, "input inplace") if pool else None
    names = "input weight bias stride padding dilation groups"
    convolution = _call_arguments(rectified[0], (torch.conv2d,), names) if rectified else None
    if not pool or not rectified or not convolution:
        return None
    _, size, stride, around, apart, ceiling, indices = pool
    by_two = (_side(size), _side(stride, 2), _side(around, 0), _side(apart, 1)) == (2, 2, 0, 1)
    x, weight, bias, step, padding, dilation, groups = convolution
    plain = _side(step, 1) == _side(dilation, 1) == (1 if groups is None else groups) == 1
    edge = _side(padding, 0)
    if not by_two or ceiling or indices or not plain or edge is None:
        return None
    return _Layer((rectified[0], pool[0], node), x, weight, bias, edge)


def _call_arguments(node: Any, targets: tuple[Any, ...], names: str) -> list[Any] | None:
    """Arguments in this order, None where there is none, of a call of one of these."""
    known = names.split()
    if not isinstance(node, Node) or node.target not in targets or not set(node.kwargs) <= set(known):
        return None
    return [*node.args, *(node.kwargs.get(name) for name in known[len(node.args) :])]


def _side(given: Any, default: int | None = None) -> int | None:
    """A number that holds for height and width; None where there are two, or it is none."""
    every = {default} if given is None else set(given) if isinstance(given, tuple | list) else {given}
    one = every.pop() if len(every) == 1 else None
    return one if type(one) is int else None


def _value(node: Any) -> Any:
    """The tensor that stood for what a node gives when it was traced, None where it was no tensor."""
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value if isinstance(value, Tensor) else None


def _on_cuda(value: Tensor) -> bool:
    return value.is_cuda


def _has_hopper(device: torch.device) -> bool:
    return is_hopper(device) and _has_kernels(device)


def _has_kernels(device: torch.device) -> bool:
    return why_not(device) is None


def _room(device: torch.device) -> int:
    """Bytes of shared memory that a block can have: where the kernel has none, torch's layers would run uncompiled."""
    found: Any = torch.cuda.get_device_properties(device)
    return int(found.shared_memory_per_block_optin)

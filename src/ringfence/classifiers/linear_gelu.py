"""Linear layers and the exact GELU behind them as one operator, in graphs that are about to be compiled.

By itself a GELU reads and writes the largest activations of a transformer, and its erf takes longer than that. On Hopper
both are one kernel (``linear_gelu_kernel.py``), which computes GELU in float32, by another formula: another form of the
network, checked as all are. They are found in the graph that torch.compile has traced, whatever modules they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.nn.functional import gelu, linear

from ringfence.noise.checked import checked_kernel

KERNEL = "ringfence.classifiers.linear_gelu_kernel"
MULTIPLE = 8
"""Columns and depth come in so many: TMA wants rows of a multiple of 16 bytes."""
ADDRESSES = 2**31
"""Rows and columns that TMA and the kernel can tell apart."""


@cache
def with_linear_gelu(mode: str | None) -> Callable[[GraphModule, Sequence[Any]], Any]:
    """A backend of torch.compile that exchanges, and leaves the rest to torch's own in this mode."""

    def compile_exchanged(traced: GraphModule, inputs: Sequence[Any]) -> Any:
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        exchange(traced.graph)
        traced.recompile()
        return compile_fx(traced, inputs, config_patches=list_mode_options(mode) if mode else {})  # type: ignore[arg-type]

    return compile_exchanged


def exchange(graph: Graph) -> None:
    """Put the operator in the place of every linear layer whose only reader is an exact GELU, where the kernel fits."""
    for node in list(graph.nodes):
        exact = node.target is gelu and len(node.args) == 1 and node.kwargs.get("approximate", "none") == "none"
        before = node.args[0] if exact else None
        if not isinstance(before, Node) or before.target is not linear or len(before.users) != 1:
            continue
        given = (*before.args, *(before.kwargs.get(name) for name in ("input", "weight", "bias")[len(before.args) :]))
        values = [one.meta.get("example_value") if isinstance(one, Node) else None for one in (*given, before)]
        if not all(isinstance(value, Tensor) for value in values) or not _fits(*values):
            continue
        with graph.inserting_before(before):  # as the layer did, it reads its input before anybody changes that
            found = graph.call_function(torch.ops.ringfence.linear_gelu.default, given)
        found.meta.update(node.meta)
        node.replace_all_uses_with(found)
        graph.erase_node(node)
        graph.erase_node(before)


def _fits(x: Tensor, weight: Tensor, bias: Tensor, found: Tensor) -> bool:
    """Whether the kernel is for these."""
    half = all(one.dtype == torch.bfloat16 for one in (x, weight, bias, found))
    sizes = (*weight.shape, x.numel() // max(1, x.shape[-1]))
    shaped = weight.dim() == 2 and bias.dim() == 1 and x.dim() > 1 and 0 < min(sizes) <= max(sizes) < ADDRESSES
    return half and shaped and all(size % MULTIPLE == 0 for size in weight.shape) and _placed(x)


def _placed(x: Tensor) -> bool:
    return x.is_cuda


def _linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """By the kernel where it runs and is right, elsewhere one after the other."""
    kernel = checked_kernel(KERNEL, x.device)
    if kernel is None or not _fits(x, weight, bias, x):
        return gelu(linear(x, weight, bias)).contiguous()
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    found: Tensor = kernel.linear_gelu(rows, weight.contiguous(), bias.contiguous())
    return found.view(*x.shape[:-1], len(weight))


def _shape_of(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], len(weight)))


# Not by custom_op, whose first call loads torch's compiler.
_LIBRARY: Any = torch.library.Library("ringfence", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("linear_gelu(Tensor x, Tensor weight, Tensor bias) -> Tensor")
_LIBRARY.impl("linear_gelu", _linear_gelu, "CompositeExplicitAutograd")
_LIBRARY.impl("linear_gelu", _shape_of, "Meta")

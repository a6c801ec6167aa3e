"""Convolutions joined with the bias, ReLU and shortcut that follow.

At ImageNet's sizes a residual network is bound by memory: what follows a convolution reads and writes all that it has
just written. cuDNN has one kernel for all of it. Sums are rounded at other places: another form of the network, checked
as all are.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.nn.functional import relu

from ringfence.classifiers.folding import uses_of

RELUS = (torch.relu, relu)
SUMS = (operator.add, operator.iadd, torch.add)
ALONE = ((1, 1), (0, 0), (1, 1), 1)
"""Stride, padding, dilation and groups of a convolution that reads pixels alone, if it has one tap."""
HIGHEST = 2**16 - 1
"""Lines of a picture: beyond that nobody has asked cuDNN."""


@final
class Joined(nn.Module):
    """relu(convolution), or with a shortcut relu(convolution + shortcut)."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        how = (convolution.stride, convolution.padding, convolution.dilation)
        self.how = (*([int(one) for one in pair] for pair in how), convolution.groups)

    def forward(self, x: Tensor, *shortcut: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, K, H', W')."""
        added = shortcut[0] if shortcut else None
        found: Tensor = torch.ops.ringfence.joined_convolution(x, self.weight, self.bias, added, *self.how)
        return found


def _joined(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None,
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    """cuDNN's on CUDA, elsewhere one after the other; channels last, as compiled code was told that it is."""
    how = (tuple(stride), tuple(padding), tuple(dilation), groups)
    fits = _on_cuda(x) and _fits(x, weight, shortcut, stride, padding, dilation)
    if fits and keeps_nan(x.device, x.dtype, x.shape, weight.shape, shortcut is not None, how, _tried()):
        return _channels_last(by_cudnn(x, weight, bias, shortcut, *how))
    return one_after_the_other(x, weight, bias, shortcut, *how)


def _on_cuda(x: Tensor) -> bool:
    return x.is_cuda


def _tried() -> bool:
    """Whether cuDNN chooses by trying: it may choose another kernel, then."""
    return torch.backends.cudnn.benchmark


def by_cudnn(x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None, *how: Any) -> Tensor:
    """All of it in one of cuDNN's kernels; how: stride, padding, dilation and groups."""
    if shortcut is None:
        return torch.cudnn_convolution_relu(x, weight, bias, *how)
    if weight.shape[2:] != (1, 1) or how != ALONE or len(x) * x.shape[2] > HIGHEST:
        return torch.cudnn_convolution_add_relu(x, weight, _channels_last(shortcut), 1, bias, *how)
    found = torch.cudnn_convolution_add_relu(_one_picture(x), weight, _one_picture(shortcut), 1, bias, *how)
    return found.permute(0, 2, 3, 1).reshape(len(x), *x.shape[2:], -1).permute(0, 3, 1, 2)


def _one_picture(x: Tensor) -> Tensor:
    """(B, C, H, W) -> (1, C, BH, W): where pixels are read alone all pictures are one, below each other.

    cuDNN takes another kernel for it, which takes half as long where 64 channels become 256.
    """
    lines = _channels_last(x).permute(0, 2, 3, 1).reshape(1, len(x) * x.shape[2], x.shape[3], x.shape[1])
    return lines.permute(0, 3, 1, 2)


@lru_cache(maxsize=1024)
def keeps_nan(
    device: torch.device, dtype: torch.dtype, image: torch.Size, taps: torch.Size, added: bool, how: Any, tried: bool
) -> bool:
    """Whether cuDNN's kernel for these shapes answers NaN where torch does, and nowhere else.

    Torch asks it not to pass NaN on: where its ReLU makes zeros of them, an invalid row would count as a class. And
    where there is no shortcut it is told to add its output, which nobody has written yet, times 0.
    """
    x = torch.ones(image, device=device, dtype=dtype)
    x[0] = torch.nan
    weight, bias = x.new_full(taps, 1 / taps[1:].numel()), x.new_zeros(taps[0])
    x, weight = _channels_last(x), _channels_last(weight)
    wanted = one_after_the_other(x, weight, bias, None, *how)
    shortcut = torch.zeros_like(wanted) if added else None
    unwritten = torch.full_like(wanted, torch.nan)
    del unwritten  # the next of this size finds them there
    found = by_cudnn(x, weight, bias, shortcut, *how)
    return bool(torch.isclose(found, wanted, rtol=0.02, atol=0.02, equal_nan=True).all())


def joins_on(device: torch.device) -> bool:
    """Whether joining pays there: on CUDA where cuDNN's kernel can be used, elsewhere it changes nothing."""
    image, taps = torch.Size((2, 64, 8, 8)), torch.Size((64, 64, 1, 1))
    return device.type != "cuda" or keeps_nan(device, torch.bfloat16, image, taps, False, ALONE, _tried())


def one_after_the_other(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """The same by torch's operators, channels last."""
    found = torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    return _channels_last(torch.relu(found if shortcut is None else found + shortcut))


def _channels_last(found: Tensor) -> Tensor:
    return found.contiguous(memory_format=torch.channels_last) if found.dim() == 4 else found


# Not by custom_op, whose first call loads torch's compiler.
_LIBRARY: Any = torch.library.Library("ringfence", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "joined_convolution(Tensor x, Tensor weight, Tensor bias, Tensor? shortcut, "
    "int[] stride, int[] padding, int[] dilation, int groups) -> Tensor"
)
_LIBRARY.impl("joined_convolution", _joined, "CompositeExplicitAutograd")
_LIBRARY.impl("joined_convolution", one_after_the_other, "Meta")


def _fits(
    x: Tensor, weight: Tensor, shortcut: Tensor | None, stride: list[int], padding: list[int], dilation: list[int]
) -> bool:
    """Whether cuDNN's kernel is for these; torch does not ask. It reads a shortcut as if it were laid out as the output
    is, and where 32 bits do not tell all numbers apart, torch divides a convolution by itself alone."""
    each = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    pixels = [(size + 2 * around - by * (taps - 1) - 1) // step + 1 for size, taps, step, around, by in each]
    out = torch.Size((len(x), len(weight), *pixels))
    same = shortcut is None or (shortcut.dtype == x.dtype and shortcut.shape == out)
    return same and len(x) > 0 and max(x.numel(), out.numel()) < 2**31


def join(traced: GraphModule) -> None:
    """Join what can be joined, in place; a convolution whose sum is read elsewhere, or that is called twice, is not."""
    graph, modules, uses = traced.graph, dict(traced.named_modules()), uses_of(traced)
    _leave_out_identities(traced, modules)

    def joinable(node: Node) -> bool:
        if node.op != "call_module" or len(node.users) != 1:
            return False
        one = modules[str(node.target)]
        plain = type(one) is nn.Conv2d and one.bias is not None and one.padding_mode == "zeros"
        return plain and not isinstance(one.padding, str) and uses[str(node.target)] == 1

    for node in list(graph.nodes):
        before = node.args[0] if _is_relu(node, modules) and node.args else None
        # It is moved to where the ReLU stands: what comes between might change its input in place.
        if not isinstance(before, Node) or before is not node.prev:
            continue
        chosen, rest = before, tuple[Any, ...]()
        if before.target in SUMS and len(before.users) == 1 and len(before.args) == 2 and not before.kwargs:
            added = {one for one in before.args if isinstance(one, Node)}
            found, chosen = {one for one in added if joinable(one)}, before.prev
            if chosen not in found or len(added) != 2:
                continue
            if before.target is operator.iadd and before.args[0] not in found:
                continue  # someone else may read what is changed here
            rest = tuple(added - {chosen})
            for other in found - {chosen}:
                _move_bias(modules[str(other.target)], modules[str(chosen.target)])
        elif not joinable(before):
            continue
        name = str(chosen.target)
        modules[name] = joined = Joined(modules[name])  # what has a shortcut now is not joined again without it
        traced.set_submodule(name, joined)
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.call_module(name, (chosen.args[0], *rest)))
        for old in dict.fromkeys((node, before, chosen)):
            graph.erase_node(old)


def _move_bias(of: nn.Module, to: nn.Module) -> None:
    """Of two convolutions that are added up one adds both: a bias by itself takes a pass over memory."""
    assert isinstance(of, nn.Conv2d)
    assert isinstance(to, nn.Conv2d)
    assert of.bias is not None
    assert to.bias is not None
    if len(of.bias) == len(to.bias):  # else one of them is broadcast
        to.bias, of.bias = nn.Parameter(to.bias + of.bias, requires_grad=False), None


def _leave_out_identities(traced: GraphModule, modules: dict[str, nn.Module]) -> None:
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and type(modules[str(node.target)]) is nn.Identity:
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)


def _is_relu(node: Node, modules: dict[str, nn.Module]) -> bool:
    return node.target in RELUS or (node.op == "call_module" and type(modules[str(node.target)]) is nn.ReLU)

"""Convolutions for GPUs: joined with the bias, ReLU and shortcut that follow, or as the matrix product that they are.

At ImageNet's sizes a residual network is bound by memory: what follows a convolution reads and writes all that it has
just written. cuDNN has one kernel for all of it. And what cuts an image into patches, as vision transformers begin, is
a product, for which cuDNN takes ten times as long. Sums are rounded at other places: another form of the network,
checked as all are.
"""

from __future__ import annotations

import operator
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.nn.functional import linear, relu

from ringfence.classifiers.base import Classifier, runs_its_code_alone, with_networks

RELUS = (torch.relu, relu)
SUMS = (operator.add, torch.add)


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
        found: Tensor = torch.ops.ringfence.joined_convolution(x, self.weight, self.bias, list(shortcut), *self.how)
        return found


@torch.library.custom_op("ringfence::joined_convolution", mutates_args=())
def _joined(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: list[Tensor],
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    """cuDNN's on CUDA, elsewhere one after the other."""
    how = (stride, padding, dilation, groups)
    if not x.is_cuda:
        return torch.relu(sum(shortcut, torch.conv2d(x, weight, bias, *how)))
    if shortcut:
        return torch.cudnn_convolution_add_relu(x, weight, shortcut[0], 1, bias, *how)
    return torch.cudnn_convolution_relu(x, weight, bias, *how)


@_joined.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, shortcut: list[Tensor],
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)


@final
class Cut(nn.Module):
    """A convolution whose patches lie side by side, as a product of matrices."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, K, H / h, W / w); what is left at the edges is not read."""
        high, wide = self.weight.shape[2:]
        down, across = x.shape[2] // high, x.shape[3] // wide
        cut = x[:, :, : down * high, : across * wide].reshape(len(x), -1, down, high, across, wide)
        rows = cut.permute(0, 2, 4, 1, 3, 5).reshape(len(x), down * across, -1)
        return linear(rows, self.weight.flatten(1), self.bias).transpose(1, 2).reshape(len(x), -1, down, across)


def cut_as_products(module: nn.Module) -> nn.Module:
    """A copy in which convolutions that cut their input into patches are products."""

    def changed(part: nn.Module) -> nn.Module | None:
        if isinstance(part, Classifier | nn.ModuleList) or not runs_its_code_alone(part):
            return None
        for name, child in list(part.named_modules()):
            if type(child) is nn.Conv2d and _cuts(child) and name:
                part.set_submodule(name, Cut(child))
        return part

    return with_networks(module, changed)


def _cuts(one: nn.Conv2d) -> bool:
    plain = set(one.padding) == {0} and set(one.dilation) == {1} and one.groups == 1
    return plain and one.kernel_size == one.stride and min(one.kernel_size) > 1


def join(traced: GraphModule) -> None:
    """Join what can be joined, in place; a convolution whose sum is read elsewhere, or that is called twice, is not."""
    graph, modules = traced.graph, dict(traced.named_modules())
    _leave_out_identities(traced, modules)
    places = {node: place for place, node in enumerate(graph.nodes)}
    calls = [node.target for node in graph.nodes if node.op == "call_module"]

    def joinable(node: Node) -> bool:
        if node.op != "call_module" or len(node.users) != 1:
            return False
        one = modules[str(node.target)]
        plain = type(one) is nn.Conv2d and one.bias is not None and one.padding_mode == "zeros"
        return plain and not isinstance(one.padding, str) and calls.count(node.target) == 1

    for node in list(graph.nodes):
        before = node.args[0] if _is_relu(node, modules) and node.args else None
        if not isinstance(before, Node):
            continue
        chosen, rest = before, tuple[Any, ...]()
        if before.target in SUMS and len(before.users) == 1 and not before.kwargs:
            found = [one for one in before.args if isinstance(one, Node) and joinable(one)]
            if not found or not all(isinstance(one, Node) for one in before.args):
                continue
            chosen = max(found, key=places.__getitem__)
            rest = tuple(one for one in before.args if one is not chosen)
        elif not joinable(before):
            continue
        name = str(chosen.target)
        traced.set_submodule(name, Joined(modules[name]))
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.call_module(name, (chosen.args[0], *rest)))
        for old in dict.fromkeys((node, before, chosen)):
            graph.erase_node(old)


def _leave_out_identities(traced: GraphModule, modules: dict[str, nn.Module]) -> None:
    for node in list(traced.graph.nodes):
        if node.op == "call_module" and type(modules[str(node.target)]) is nn.Identity:
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)


def _is_relu(node: Node, modules: dict[str, nn.Module]) -> bool:
    return node.target in RELUS or (node.op == "call_module" and type(modules[str(node.target)]) is nn.ReLU)

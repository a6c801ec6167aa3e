"""Weights of a CIFAR ResNet in the order in which the fused kernel reads them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ringfence.classifiers.architectures.resnet import Block, PadShortcut, ResNet


def convolutions(network: ResNet) -> Iterator[tuple[Tensor, Tensor]]:
    """(weight, bias) with batch norms folded, in the order in which the kernel uses them."""
    weight, bias = _folded(network.conv1, network.bn1)
    wide = torch.zeros(16, 16, 3, 3)
    wide[:, :3] = weight  # three channels stand in sixteen, the rest is zero
    yield wide, bias
    for group in (network.layer1, network.layer2, network.layer3):
        for block in group:
            assert isinstance(block, Block)
            if not isinstance(block.shortcut, nn.Identity):
                yield _shortcut(block)
            yield _folded(block.conv1, block.bn1)
            yield _folded(block.conv2, block.bn2)


def _folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    both = fuse_conv_bn_eval(convolution.float(), norm.float())
    assert both.bias is not None
    return both.weight.detach(), both.bias.detach()


def _shortcut(block: Block) -> tuple[Tensor, Tensor]:
    """The 1 x 1 convolution that joins two widths; zeros in new channels are one as well."""
    if isinstance(block.shortcut, PadShortcut):
        inputs, outputs = block.conv1.in_channels, block.conv1.out_channels
        weight = torch.zeros(outputs, inputs, 1, 1)
        rows = torch.arange(inputs)
        weight[rows + (outputs - inputs) // 2, rows] = 1
        return weight, torch.zeros(outputs)
    assert isinstance(block.shortcut, nn.Sequential)
    convolution, norm = block.shortcut
    assert isinstance(convolution, nn.Conv2d)
    assert isinstance(norm, nn.BatchNorm2d)
    return _folded(convolution, norm)


def pack(weight: Tensor) -> Tensor:
    """(K, C, k, k) -> bf16 in the order of mma.m16n8k16's second operand: (tap, C/16, K/16, lane, 2, 4), flat."""
    outputs, inputs = weight.shape[:2]
    by_tap = weight.flatten(2).permute(2, 0, 1)  # (tap, K, C)
    lane = torch.arange(32)
    pairs, steps = torch.arange(outputs // 16), torch.arange(inputs // 16)
    column = (2 * pairs.view(-1, 1, 1) + torch.arange(2)) * 8 + (lane // 4).view(1, -1, 1)  # (pairs, lane, 2)
    row = steps.view(-1, 1, 1) * 16 + (lane % 4 * 2).view(1, -1, 1) + torch.tensor([0, 1, 8, 9])  # (steps, lane, 4)
    found = by_tap[:, column.view(1, len(pairs), 32, 2, 1), row.view(len(steps), 1, 32, 1, 4)]
    return found.to(torch.bfloat16).flatten()

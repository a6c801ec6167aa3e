"""Residual networks for 32 x 32 images (He, Zhang, Ren, Sun: Deep residual learning, 2016, sec. 4.2)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import pad, relu

Shortcut = Literal["projection", "pad"]
"""What joins blocks of different widths: a 1 x 1 convolution (option B), or zeros (option A, no parameters)."""


class PadShortcut(nn.Module):
    """Every second pixel, zeros in the new channels: (B, C, H, W) -> (B, channels, H/2, W/2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """The thinned and widened batch."""
        before = (self.channels - x.shape[1]) // 2
        return pad(x[:, :, ::2, ::2], (0, 0, 0, 0, before, self.channels - x.shape[1] - before))


class Block(nn.Module):
    """relu(bn(conv(relu(bn(conv(x))))) + shortcut(x))."""

    def __init__(self, channels_in: int, channels: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 and shortcut == "pad":
            self.shortcut = PadShortcut(channels)
        elif stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels_in, H, W) -> (B, channels, H/stride, W/stride)."""
        inner = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class ResNet(nn.Module):
    """Three groups of n blocks with 16, 32 and 64 channels, depth 6n + 2: (B, 3, 32, 32) -> (B, num_classes)."""

    def __init__(self, depth: int, num_classes: int = 10, shortcut: Shortcut = "projection") -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth must be 6n + 2, got {depth}")
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _group(16, 16, blocks, 1, shortcut)
        self.layer2 = _group(16, 32, blocks, 2, shortcut)
        self.layer3 = _group(32, 64, blocks, 2, shortcut)
        self.linear = nn.Linear(64, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of images (B, 3, 32, 32)."""
        features = self.layer3(self.layer2(self.layer1(relu(self.bn1(self.conv1(x))))))
        scores: Tensor = self.linear(features.mean((2, 3)))
        return scores


def _group(channels_in: int, channels: int, blocks: int, stride: int, shortcut: Shortcut) -> nn.Sequential:
    first = Block(channels_in, channels, stride, shortcut)
    return nn.Sequential(first, *(Block(channels, channels, 1, shortcut) for _ in range(blocks - 1)))


def resnet(depth: int, num_classes: int = 10, shortcut: Shortcut = "projection") -> ResNet:
    """The CIFAR residual network of a depth 6n + 2.

    Parameters at ten classes: depth 20 has 272,474 with projections and 269,722 padded; depth 110 has 1,730,714.
    """
    return ResNet(depth, num_classes, shortcut)

"""Residual networks for ImageNet (He, Zhang, Ren, Sun: Deep residual learning, 2016, table 1).

Strides stand in the 3 x 3 convolutions of a bottleneck, and keys are named, as in the code whose weights are published.
"""

from __future__ import annotations

from typing import final

from torch import Tensor, nn
from torch.nn.functional import relu

SIZES = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
"""Blocks of the four groups; from depth 50 on they are bottlenecks."""

CHANNELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Channel means and deviations that networks for ImageNet are trained with."""


class _Residual(nn.Module):
    """relu(bn(conv(... relu(bn(conv(x))) ...)) + shortcut(x)), the convolutions in order: conv1, conv2, ..."""

    def __init__(self, inputs: int, outputs: int, stride: int, convolutions: list[nn.Conv2d]) -> None:
        super().__init__()
        self.names = [(f"conv{place}", f"bn{place}") for place in range(1, 1 + len(convolutions))]
        for (conv, norm), convolution in zip(self.names, convolutions, strict=True):
            self.add_module(conv, convolution)
            self.add_module(norm, nn.BatchNorm2d(convolution.out_channels))
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H/stride, W/stride)."""
        inner = x
        for place, (conv, norm) in enumerate(self.names):
            inner = getattr(self, norm)(getattr(self, conv)(relu(inner) if place else inner))
        return relu(inner + (x if self.downsample is None else self.downsample(x)))


def _basic(inputs: int, width: int, stride: int) -> _Residual:
    first = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
    return _Residual(inputs, width, stride, [first, nn.Conv2d(width, width, 3, padding=1, bias=False)])


def _bottleneck(inputs: int, width: int, stride: int) -> _Residual:
    narrow = nn.Conv2d(inputs, width, 1, bias=False)
    middle = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
    return _Residual(inputs, 4 * width, stride, [narrow, middle, nn.Conv2d(width, 4 * width, 1, bias=False)])


@final
class ImageNetResNet(nn.Module):
    """Four groups of blocks with 64, 128, 256 and 512 channels: (B, 3, H, W) -> (B, num_classes)."""

    def __init__(self, name: str, num_classes: int = 1000) -> None:
        super().__init__()
        block, factor = (_bottleneck, 4) if int(name.removeprefix("resnet")) >= 50 else (_basic, 1)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        inputs = 64
        for place, blocks in enumerate(SIZES[name]):
            width, stride = 64 << place, 1 if place == 0 else 2
            rest = [block(factor * width, width, 1) for _ in range(blocks - 1)]
            self.add_module(f"layer{place + 1}", nn.Sequential(block(inputs, width, stride), *rest))
            inputs = factor * width
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of images (B, 3, H, W)."""
        features = self.maxpool(relu(self.bn1(self.conv1(x))))
        for place in range(1, 5):
            features = getattr(self, f"layer{place}")(features)
        scores: Tensor = self.fc(features.mean((2, 3)))
        return scores

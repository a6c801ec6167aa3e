"""Networks by name: ``lenet``, and the CIFAR ``resnet<depth>`` with projections or, as ``-pad``, without."""

from __future__ import annotations

import re

from torch import nn

from ringfence.classifiers.architectures.lenet import LeNet
from ringfence.classifiers.architectures.resnet import ResNet, resnet

__all__ = ["ARCHITECTURES", "LeNet", "ResNet", "build_architecture", "is_architecture", "resnet"]

ARCHITECTURES = ("lenet", *(f"resnet{depth}{pad}" for depth in (20, 32, 44, 56, 110) for pad in ("", "-pad")))
"""The usual names; any other depth 6n + 2 is understood too."""

_RESNET = re.compile(r"resnet(\d+)(-pad)?")


def is_architecture(name: str) -> bool:
    """Whether ``build_architecture`` knows the name."""
    match = _RESNET.fullmatch(name)
    return name == "lenet" or (match is not None and int(match[1]) >= 8 and int(match[1]) % 6 == 2)


def build_architecture(name: str, num_classes: int = 10) -> nn.Module:
    """A freshly initialised network; its scores have shape (B, num_classes)."""
    if not is_architecture(name):
        raise KeyError(name)
    match = _RESNET.fullmatch(name)
    if match is None:
        return LeNet(num_classes)
    return resnet(int(match[1]), num_classes, "pad" if match[2] else "projection")

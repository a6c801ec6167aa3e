"""Networks by name: two LeNets, the CIFAR ``resnet<depth>`` with projections or, as ``-pad``, without, ImageNet's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from ringfence.classifiers.architectures.denoisers import DnCNN as DnCNN
from ringfence.classifiers.architectures.efficientnet import PIXELS
from ringfence.classifiers.architectures.efficientnet import EfficientNetLite0 as EfficientNetLite0
from ringfence.classifiers.architectures.imagenet_resnet import SIZES
from ringfence.classifiers.architectures.imagenet_resnet import ImageNetResNet as ImageNetResNet
from ringfence.classifiers.architectures.lenet import LeNet as LeNet
from ringfence.classifiers.architectures.lenet import wide_lenet as wide_lenet
from ringfence.classifiers.architectures.resnet import ResNet as ResNet
from ringfence.classifiers.architectures.resnet import resnet as resnet

# Depths 50 and 152 would be of the form 6n + 2 too, but those names mean ImageNet's networks.
_DEPTHS = (8, 14, 20, 32, 44, 56, 110)

ARCHITECTURES: dict[str, Callable[[int], nn.Module]] = {
    "lenet": LeNet,
    "lenet-wide": wide_lenet,
    **{
        f"resnet{depth}{pad}": partial(resnet, depth, shortcut="pad" if pad else "projection")
        for depth in _DEPTHS
        for pad in ("", "-pad")
    },
    **{name: partial(ImageNetResNet, name) for name in SIZES},
    "efficientnet_lite0": EfficientNetLite0,
}
"""By name what makes a network of so many classes."""

NETWORKS = ("DnCNN", "EfficientNetLite0", "LeNet", "ResNet", "resnet", "wide_lenet")
"""What a model spec may name here, as ``module:factory``; it builds a network and does nothing else."""

DENOISERS: dict[str, Callable[[int], nn.Module]] = {"dncnn": DnCNN}
"""By name what makes a denoiser of images with so many channels."""

NORMALIZATION = {"efficientnet_lite0": PIXELS}
"""Channel means and deviations of architectures that always had the same ones."""


def build_architecture(name: str, num_classes: int = 10) -> nn.Module:
    """A freshly initialised network; its scores have shape (B, num_classes). KeyError for an unknown name."""
    return ARCHITECTURES[name](num_classes)

"""Networks by name: two LeNets, the CIFAR ``resnet<depth>`` with projections or, as ``-pad``, without, ImageNet's."""

from __future__ import annotations

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

ARCHITECTURES = (
    "lenet",
    "lenet-wide",
    *(f"resnet{depth}{pad}" for depth in _DEPTHS for pad in ("", "-pad")),
    *SIZES,
    "efficientnet_lite0",
)
"""Every name ``build_architecture`` knows."""

NETWORKS = ("DnCNN", "EfficientNetLite0", "LeNet", "ResNet", "resnet", "wide_lenet")
"""What a model spec may name here, as ``module:factory``; it builds a network and does nothing else."""

DENOISERS = ("dncnn",)
"""Every name ``build_denoiser`` knows."""

NORMALIZATION = {"efficientnet_lite0": PIXELS}
"""Channel means and deviations of architectures that always had the same ones."""


def build_denoiser(name: str, channels: int = 1) -> nn.Module:
    """A freshly initialised denoiser: (B, channels, H, W) -> the same shape. KeyError for an unknown name."""
    if name not in DENOISERS:
        raise KeyError(name)
    return DnCNN(channels)


def build_architecture(name: str, num_classes: int = 10) -> nn.Module:
    """A freshly initialised network; its scores have shape (B, num_classes). KeyError for an unknown name."""
    if name not in ARCHITECTURES:
        raise KeyError(name)
    if name == "lenet":
        return LeNet(num_classes)
    if name == "lenet-wide":
        return wide_lenet(num_classes)
    if name == "efficientnet_lite0":
        return EfficientNetLite0(num_classes)
    if name in SIZES:
        return ImageNetResNet(name, num_classes)
    depth = int(name.removeprefix("resnet").removesuffix("-pad"))
    return resnet(depth, num_classes, "pad" if name.endswith("-pad") else "projection")

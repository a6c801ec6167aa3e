"""The clean CIFAR-10 ResNet-56 as ACES's core network, behind its own normalisation.

``--mean`` and ``--std`` would stand before the certification network too, which brings another one; so this is a
factory: ``--core tools/cifar_core.py:resnet56``, in a folder where ``data`` leads to the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

RESNET56 = "resnet56-pad@data/weights/cifar10_resnet56.pt"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""What this network was trained with (the README of the data)."""


def resnet56() -> nn.Module:
    """Batch (B, 3, 32, 32) in [0, 1] -> scores (B, 10)."""
    from ringfence.models import load_model

    return load_model(RESNET56, mean=MEAN, std=STD).module

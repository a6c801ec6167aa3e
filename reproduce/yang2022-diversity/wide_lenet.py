"""A wider LeNet, to see how much of the distance to the MNIST tables of Yang et al. 2022 is the network's size."""

from __future__ import annotations

from torch import nn


def wide_lenet() -> nn.Module:
    """(B, 1, 28, 28) -> (B, 10): LeNet's layers with 20 and 50 channels and 500 units, 431,080 parameters (Caffe's)."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * 4 * 4, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )

"""A CIFAR ResNet as one CUDA kernel whose activations never leave the chip (resnet.cu).

At 16 to 64 channels the convolutions of a ResNet are bound by memory: a compiled network writes every activation and
reads it again. The kernel keeps those of two images in the shared memory of a multiprocessor, from the first
convolution to the pooling. Same arithmetic as the folded network in bf16: half-precision products, float32 sums.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.architectures.resnet import ResNet
from ringfence.classifiers.base import Classifier, with_networks
from ringfence.classifiers.fused.call import IMAGES, SHAPE, SHARED_BYTES, fused_resnet, kernel_on
from ringfence.classifiers.fused.weights import convolutions, pack
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ArgumentError

LARGEST_DIFFERENCE = 0.1
"""Of the kernel's scores from the float32 network's, as a share of the largest: rounding stays well below it."""


@final
class FusedResNet(nn.Module):
    """The kernel with one network's weights: (B, 3, 32, 32) in bf16 -> scores (B, K) in float32.

    Weights are kept as the integers that have their bits: casting a network to another type leaves those alone.
    """

    weights: Tensor
    numbers: Tensor

    def __init__(self, network: ResNet, mean: Tensor | None = None, std: Tensor | None = None) -> None:
        super().__init__()
        every = list(convolutions(network))
        self.blocks, self.classes = len(network.layer1), network.linear.out_features
        mean, std = torch.zeros(3) if mean is None else mean, torch.ones(3) if std is None else std
        scale = (1 / std.double().flatten()).expand(3)
        parts = [
            *(bias for _, bias in every),
            network.linear.weight,
            network.linear.bias,
            scale,
            -mean.flatten() * scale,
        ]
        numbers = torch.cat([part.detach().double().flatten() for part in parts]).float()
        packed = torch.cat([pack(weight) for weight, _ in every])
        self.register_buffer("weights", packed.view(torch.int16))
        self.register_buffer("numbers", numbers.view(torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        """Scores of a batch."""
        scores: Tensor = fused_resnet(x, self.weights, self.numbers, self.blocks, self.classes)
        return scores


def fuse_resnets(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy in which every CIFAR ResNet, with the normalisation before it, is one kernel, compared with it here."""
    if problem := why_not(device):
        raise ArgumentError(
            "fused", "needs a GPU like the H200, and CuPy", problem, "Leave it out: plans without it run."
        )
    return with_networks(module, partial(_fused, device=device))


def count_resnets(module: nn.Module) -> int:
    """How many networks there are to fuse: a ResNet that is part of another network is none."""
    if type(module) is ResNet:
        return 1
    composed = isinstance(module, Classifier | nn.ModuleList)
    return sum(count_resnets(part) for part in module.children()) if composed else 0


def rows_at_a_time(device: torch.device) -> int:
    """Rows that the device takes in one wave of blocks: one block on every multiprocessor."""
    found: Any = torch.cuda.get_device_properties(device)
    return int(IMAGES * found.multi_processor_count)


def whole_waves(rows: int, device: torch.device) -> int:
    """The largest number of rows up to this one that leaves no wave half empty."""
    return rows - rows % rows_at_a_time(device)


@lru_cache(maxsize=8)
def why_not(device: torch.device) -> str | None:
    """What is missing on this device, if anything."""
    if device.type != "cuda":
        return f"device {device.type}"
    found: Any = torch.cuda.get_device_properties(device)
    if found.major < 9 or found.shared_memory_per_block_optin < SHARED_BYTES:
        return f"{found.name} with {found.shared_memory_per_block_optin} bytes of shared memory a block"
    try:
        kernel_on(device)
    except Exception as error:  # CuPy is missing, or made for another CUDA
        return f"{type(error).__name__}: {error}"
    return None


def _fused(module: nn.Module, device: torch.device) -> nn.Module | None:
    network = module.module if isinstance(module, Normalize) else module
    if type(network) is not ResNet:
        return None
    moments = (module.mean, module.std) if isinstance(module, Normalize) else ()
    fused = FusedResNet(network.cpu(), *(one.cpu() for one in moments)).to(device)
    _compare(module.to(device), fused, device)
    return fused


@torch.inference_mode()
def _compare(network: nn.Module, fused: FusedResNet, device: torch.device) -> None:
    x = torch.randn(33, *SHAPE, generator=torch.Generator().manual_seed(0)).mul_(0.3).add_(0.5).to(device)
    wanted: Tensor = network.float()(x)
    off, scale = (fused(x) - wanted).abs().max(), wanted.abs().max()
    if not off <= LARGEST_DIFFERENCE * scale:
        received = f"scores that are {float(off):.3g} off, where the largest is {float(scale):.3g}"
        raise ArgumentError("fused", "must compute the network's scores", received, "Leave it out, and tell us.")

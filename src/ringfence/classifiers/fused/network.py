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
from ringfence.classifiers.base import Classifier, has_hooks, runs_its_code_alone, with_networks
from ringfence.classifiers.fused.call import IMAGES, SHARED_BYTES, fused_resnet, kernel_on
from ringfence.classifiers.fused.weights import convolutions, pack
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ArgumentError


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
    """A copy in which every CIFAR ResNet, with the normalisation before it, is one kernel.

    That it computes what the networks do is checked where it is used (sampling/check.py).
    """
    if problem := why_not(device):
        raise ArgumentError(
            "fused", "needs a GPU like the H200, and CuPy", problem, "Leave it out: plans without it run."
        )
    return with_networks(module, partial(_fused, device=device))


def count_resnets(module: nn.Module) -> int:
    """How many networks there are to fuse: a ResNet that is part of another network is none."""
    if _fusable(module):
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


def _fusable(network: nn.Module) -> bool:
    """Whether the network is its weights: the kernel reads nothing else of it."""
    return type(network) is ResNet and runs_its_code_alone(network)


def _fused(module: nn.Module, device: torch.device) -> nn.Module | None:
    network: nn.Module = module
    moments: tuple[Tensor, ...] = ()
    if isinstance(module, Normalize) and not has_hooks(module):
        network, moments = module.module, (module.mean.cpu(), module.std.cpu())
    if not isinstance(network, ResNet) or not _fusable(network):
        return None
    return FusedResNet(network.cpu(), *moments).to(device)

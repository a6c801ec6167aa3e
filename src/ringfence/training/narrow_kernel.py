"""3 x 3 convolutions of few channels on CUDA, forward, to the input and to the weight: launches of ``narrow.cu``.

Where the images are those of CIFAR ResNets. cuDNN works on 32 or 64 channels at a time, and takes several times as long
as moving the activations. Sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from ringfence.classifiers.fused.launching import kernel_of, launch_kernel, source
from ringfence.training.narrow import SIDES

IMAGES, THREADS, SUMMED = {16: 1, 32: 2}, 256, 64
"""Of a block: images, by channels; threads; numbers that one of the last kernel adds up."""


def convolved(x: Tensor, weight: Tensor, back: bool = False) -> Tensor:
    """x (B, C, H, W), weight (C, C, 3, 3), channels last, padded by 1 -> (B, C, H, W); back: the adjoint."""
    channels, out = x.shape[1], torch.empty_like(x)
    _run("narrow_back" if back else "narrow_forward", channels, _blocks(x), (x, weight, out), len(x))
    return out


def to_weight(x: Tensor, gradient: Tensor) -> Tensor:
    """x, gradient (B, C, H, W), both channels last -> (C, C, 3, 3), channels last."""
    channels, shares = x.shape[1], _blocks(x)
    size = 9 * channels * channels
    found = torch.empty(shares, size, device=x.device)
    out = torch.empty((channels, channels, 3, 3), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    _run("narrow_weight", channels, shares, (x, gradient, found), len(x))
    _run("narrow_sum", channels, size // SUMMED, (found, out), shares)
    return out


def _blocks(x: Tensor) -> int:
    return -(-len(x) // IMAGES[x.shape[1]])


def _run(name: str, channels: int, blocks: int, tensors: Sequence[Tensor], count: int) -> None:
    device = tensors[0].device
    kernel, shared = _kernel_on(device, name, channels)
    launch_kernel(kernel, device, blocks, THREADS, shared, *tensors, count)


@lru_cache(maxsize=32)
def _kernel_on(device: torch.device, name: str, channels: int) -> tuple[Any, int]:
    """The kernel and the shared memory of a block in bytes."""
    side, text = SIDES[channels], source("tensor_cores.cu") + source("narrow.cu", package="ringfence.training")
    pixel = 2 * channels * IMAGES[channels]
    padded, weights = pixel * (side + 2) ** 2, channels * (18 * channels + 16)
    shared = {"narrow_sum": 0, "narrow_weight": padded + pixel * side**2}.get(name, padded + weights)
    return kernel_of(text, name, device, shared, f"-DC={channels}"), shared


def is_right(device: torch.device) -> bool:
    """Whether all three are torch's in float64, up to rounding, for images that fill no block."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        found = torch.randn(shape, device=device, generator=generator).bfloat16()
        return found.contiguous(memory_format=torch.channels_last)

    for channels, side in SIDES.items():
        image = (5, channels, side, side)
        x, weight, gradient = drawn(*image), drawn(channels, channels, 3, 3), drawn(*image)
        wide = [one.double() for one in (x, weight, gradient)]
        wanted = (
            torch.conv2d(wide[0], wide[1], padding=1),
            conv2d_input(x.shape, wide[1], wide[2], padding=1),  # type: ignore[no-untyped-call]
            conv2d_weight(wide[0], weight.shape, wide[2], padding=1),  # type: ignore[no-untyped-call]
        )
        found = convolved(x, weight), convolved(gradient, weight, back=True), to_weight(x, gradient)
        if not all((one - two).norm() <= 5e-3 * two.norm() for one, two in zip(found, wanted, strict=True)):
            return False
    return True

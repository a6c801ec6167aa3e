"""Two layers of convolution, ReLU and maximum on CUDA: launches of ``fused/pooled.cu``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, relu

from ringfence.classifiers.fused.launching import kernel_of, launch_kernel, source
from ringfence.classifiers.pooling import Layers


def pooled_twice(
    layers: Layers, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, out: Tensor | None = None
) -> Tensor:
    """Images (B, C, H, W) -> (B, K, H', W'), contiguous, as out is if it is given."""
    out = x.new_empty(len(x), layers.second[2], *layers.sizes[1]) if out is None else out
    x = x.contiguous(memory_format=torch.channels_last if layers.last else torch.contiguous_format)
    x = x if x.data_ptr() % 16 == 0 else x.clone()
    tensors = (x, *(one.contiguous() for one in (weight1, bias1, weight2, bias2)), out)
    kernel, warps, multiprocessors = _kernel_on(x.device, layers)
    blocks = min(multiprocessors, -(-len(x) // warps))
    launch_kernel(kernel, x.device, blocks, 32 * warps, layers.shared_bytes(warps), *tensors, len(x))
    return out


@lru_cache(maxsize=32)
def _kernel_on(device: torch.device, layers: Layers) -> tuple[Any, int, int]:
    """The kernel, a block's warps and how many blocks fill the device."""
    found: Any = torch.cuda.get_device_properties(device)
    warps = layers.warps(found.shared_memory_per_block_optin)
    if not warps:
        raise RuntimeError(f"{found.name} has too little shared memory for {layers}")
    shared = layers.shared_bytes(warps)
    text = source("tensor_cores.cu", "pooled.cu")
    kernel = kernel_of(text, "pooled_twice", device, shared, *layers.options(warps))
    return kernel, warps, int(found.multi_processor_count)


def is_right(device: torch.device, layers: Layers) -> bool:
    """Whether it is torch's in float64 for these shapes, up to rounding, writes all of that, and NaN are torch's."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, device=device, generator=generator)).bfloat16()

    x = drawn(3001, *layers.image)  # more than are in work at a time
    x[1, 0, 0, 0], x[5, -1, -1, -1], x[9, 0, layers.image[1] // 2, 0] = torch.nan, torch.nan, torch.inf
    x = x.contiguous(memory_format=torch.channels_last) if layers.last else x
    w1, b1, w2, b2 = (drawn(*shape, scale=torch.Size(shape[1:]).numel() ** -0.5) for shape in layers.weights)
    exact = x
    for weight, bias, (_, edge, _) in ((w1, b1, layers.first), (w2, b2, layers.second)):
        exact = max_pool2d(relu(torch.conv2d(exact.double(), weight.double(), bias.double(), padding=edge)), 2)
        exact = exact.bfloat16()  # as it stands between them
    exact = exact.contiguous()
    ours = pooled_twice(layers, x, w1, b1, w2, b2, torch.full_like(exact, -7))
    known = torch.isfinite(exact)
    off = torch.where(known, ours.double() - exact.double(), 0.0).norm()
    same = torch.equal(ours.isnan(), exact.isnan()) and torch.equal(ours.isinf(), exact.isinf())
    return same and bool(off <= 5e-3 * torch.where(known, exact, 0.0).double().norm())

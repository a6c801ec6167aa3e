"""What a draw on CUDA is, in NumPy: the reference that the kernel is checked against before it is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def signed(key: int) -> int:
    """The 64 bits of a key as the signed number that has them."""
    return key - (1 << 64) if key >= 1 << 63 else key


def words(key: int, first: NDArray[np.uint64], second: int | NDArray[np.uint64], third: int = 0) -> NDArray[np.uint64]:
    """Philox-4x32-10 (Salmon et al. 2011) at the counters (first, second, third, 0): 32-bit words (4, blocks)."""
    a, b = first, np.zeros_like(first) + np.uint64(second)
    c, d = np.full_like(first, third), np.zeros_like(first)
    low, high = np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)
    for _ in range(10):
        even, odd = np.uint64(0xD2511F53) * a, np.uint64(0xCD9E8D57) * c
        a, b, c, d = (odd >> HALF) ^ b ^ low, odd & LOW, (even >> HALF) ^ d ^ high, even & LOW
        low, high = (low + np.uint64(0x9E3779B9)) & LOW, (high + np.uint64(0xBB67AE85)) & LOW
    return np.stack([a, b, c, d])


def normals(key: int, place: int, size: int) -> NDArray[np.float64]:
    """The draw (size,) of a 64-bit key in a place: numbers i, i+Q, i+2Q, i+3Q come from block i, Q = ceil(size/4).

    Pairs of words (u, t) give sqrt(-2 ln u) (cos t, sin t), u on {1..2^31}/2^31 and t on [-pi, pi).
    """
    quarter = -(-size // 4)
    found = words(key, np.arange(quarter, dtype=np.uint64), place)
    radius = np.sqrt(-2 * np.log(((found[[0, 2]] >> np.uint64(1)).astype(np.float64) + 1) * 2.0**-31))
    angle = found[[1, 3]].astype(np.uint32).view(np.int32) * (np.pi * 2.0**-31)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)  # (pair, cos or sin, block)
    return pairs.reshape(-1)[:size]


def are_drawn_by(add_noise: Callable[[Tensor, Tensor, Tensor, float], None], device: torch.device) -> bool:
    """Whether a kernel (noise/kernel.py) draws these numbers, to float32's accuracy.

    Half of all keys are 2^63 and more, and reach it as negative numbers.
    """
    keys, places, size = [1, (1 << 63) - 1, 1 << 63, (1 << 64) - 5], [0, 99, 7, 50], 1003
    table = torch.tensor([[0] * len(keys), np.array(keys, np.uint64).view(np.int64).tolist(), places], device=device)
    out = torch.empty(len(keys), size, device=device)
    add_noise(out, torch.zeros(1, size, device=device), table, 1.0)
    wanted = torch.stack([torch.from_numpy(normals(*one, size)) for one in zip(keys, places, strict=True)])
    return bool((out.cpu() - wanted).abs().max() < 1e-4)

"""What a draw on CUDA is, in NumPy: the reference that the kernel is checked against before it is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def words(key: int, first: NDArray[np.uint64], second: int) -> NDArray[np.uint64]:
    """Philox-4x32-10 (Salmon et al. 2011) at the counters (first, second, 0, 0): 32-bit words (4, blocks)."""
    a, b = first, np.full_like(first, second)
    c, d = np.zeros_like(first), np.zeros_like(first)
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

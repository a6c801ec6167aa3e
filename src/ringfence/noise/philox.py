"""Philox in NumPy: the words that exact noise is made of on the CPU, and the references of the float kernel on CUDA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.stats.noise_law import DECAY, HALF_WIDTH

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
EVEN, ODD = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)


def signed(key: int) -> int:
    """The 64 bits of a key as the signed number that has them."""
    return key - (1 << 64) if key >= 1 << 63 else key


def words(key: int, first: NDArray[np.uint64], second: int | NDArray[np.uint64], third: int = 0) -> NDArray[np.uint64]:
    """Philox-4x32-10 (Salmon et al. 2011) at the counters (first, second, third, 0): 32-bit words (4, blocks)."""
    a, b = first, np.zeros_like(first) + np.uint64(second)
    c, d = np.full_like(first, third), np.zeros_like(first)
    for low, high in round_keys(key):
        even, odd = EVEN * a, ODD * c
        a, b, c, d = (odd >> HALF) ^ b ^ low, odd & LOW, (even >> HALF) ^ d ^ high, even & LOW
    return np.stack([a, b, c, d])


def round_keys(key: int) -> list[tuple[np.uint64, np.uint64]]:
    """What the ten rounds mix in: the two halves of the key, with Weyl's sequences added."""
    low, high, found = key & 0xFFFFFFFF, key >> 32, []
    for _ in range(10):
        found.append((np.uint64(low), np.uint64(high)))
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return found


def rows_of_words(key: int, quarter: int, start: int, rows: int) -> list[NDArray[np.int64]]:
    """``words`` at the counters (i, place, 0, 0), i below quarter, places from start on: four arrays (rows, quarter).

    The first two rounds are done for columns and rows apart, where words depend on one of them alone. After that b and
    d keep the bits above 32 of the product they are: what they are mixed into is cut anyway. All in place: fresh memory
    costs as much as counting in it.
    """
    keys = round_keys(key)
    i, place = np.arange(quarter, dtype=np.uint64), np.arange(start, start + rows, dtype=np.uint64)[:, None]
    even = EVEN * i  # the first round: c and d are 0
    odd = ODD * ((even >> HALF) ^ keys[0][1])
    below = even & LOW
    even = EVEN * (place ^ keys[0][0])  # the second: b is 0
    c = ((even >> HALF) ^ keys[1][1]) ^ below
    a, b, d = (np.empty_like(c) for _ in range(3))
    a[:], b[:], d[:] = (odd >> HALF) ^ keys[1][0], odd & LOW, even & LOW
    spare = np.empty_like(c)
    for low, high in keys[2:]:
        for word, product, mixed, key_word, free in ((a, EVEN, d, high, spare), (c, ODD, b, low, d)):
            np.multiply(word, product, out=free)
            np.right_shift(free, HALF, out=word)
            np.bitwise_xor(word, mixed, out=word)
            np.bitwise_xor(word, key_word, out=word)
            np.bitwise_and(word, LOW, out=word)
        # Where a was stands the new c, where d was the new b, in the spare room the new d.
        a, b, c, d, spare = c, d, a, spare, b
    b &= LOW
    d &= LOW
    return [one.view(np.int64) for one in (a, b, c, d)]


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


def uniforms(key: int, place: int, size: int) -> NDArray[np.float64]:
    """The same for uniform noise: number i + kQ is sqrt(3) (w + 1/2) / 2^31 of the signed word k of block i."""
    return np.asarray((_signed_words(key, place, size) + 0.5) * (HALF_WIDTH * 2.0**-31), np.float64)


def laplaces(key: int, place: int, size: int) -> NDArray[np.float64]:
    """The same for Laplace noise: -ln(u) / sqrt(2), u on {1..2^31}/2^31 from the word's lower bits, with its sign."""
    found = _signed_words(key, place, size)
    length = -np.log(((found & 0x7FFFFFFF) + 1) * 2.0**-31) / DECAY
    return np.asarray(np.where(found < 0, -length, length), np.float64)


def _signed_words(key: int, place: int, size: int) -> NDArray[np.int64]:
    """Words k of blocks i as signed numbers, (size,), in the order i + kQ."""
    found = words(key, np.arange(-(-size // 4), dtype=np.uint64), place)
    return found.reshape(-1)[:size].astype(np.uint32).view(np.int32).astype(np.int64)


REFERENCES = {"gaussian": normals, "uniform": uniforms, "laplace": laplaces}
"""A draw (size,) of standard deviation 1 of a key in a place, by family."""


def are_drawn_by(
    add_noise: Callable[[Tensor, Tensor, Tensor, float, str], None], device: torch.device, family: str = "gaussian"
) -> bool:
    """Whether a kernel (noise/kernel.py) draws these numbers, to float32's accuracy.

    Half of all keys are 2^63 and more, and reach it as negative numbers.
    """
    keys, places, size = [1, (1 << 63) - 1, 1 << 63, (1 << 64) - 5], [0, 99, 7, 50], 1003
    table = torch.tensor([[0] * len(keys), np.array(keys, np.uint64).view(np.int64).tolist(), places], device=device)
    out = torch.empty(len(keys), size, dtype=torch.float32, device=device)
    add_noise(out, torch.zeros_like(out[:1]), table, 1.0, family)
    draw = REFERENCES[family]
    wanted = torch.stack([torch.from_numpy(draw(*one, size)) for one in zip(keys, places, strict=True)])
    return bool((out.cpu() - wanted).abs().max() < 1e-4)

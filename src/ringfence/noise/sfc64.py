"""SFC64 of NumPy for many keys at once: of features, seeding its generators one by one takes longer than drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
from numpy.random import SFC64
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

FEW: Final = 8
"""Keys that are seeded as fast one by one."""


def streams(keys: Sequence[int]) -> list[SFC64]:
    """``SFC64(key)`` of every 64-bit key."""
    if len(keys) < FEW:
        return [SFC64(key) for key in keys]
    known: Any = _Known(seeds(keys))  # which NumPy takes, though it does not say so of each kind of bits
    return [SFC64(known) for _ in keys]


@final
class _Known(ISeedSequence):
    """Says what the SeedSequences of several keys would, one after the other."""

    def __init__(self, seeds: NDArray[np.uint64]) -> None:
        self._seeds = iter(seeds)

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> NDArray[np.uint64]:
        """Three words of 64 bits: more is never asked for."""
        return next(self._seeds)


def _powers(first: int, factor: int, count: int) -> NDArray[np.uint32]:
    """(count, 1): first, and each the one before it times the factor."""
    found = [first]
    while len(found) < count:
        found.append(found[-1] * factor & 0xFFFFFFFF)
    return np.array(found, np.uint32)[:, None]


_MIXED_IN, _PUT_OUT = _powers(0x43B0D7E5, 0x931E8875, 17), _powers(0x8B51F9DD, 0x58F38DED, 7)
_LEFT, _RIGHT, _HALF = np.uint32(0xCA01F9DD), np.uint32(0x4973F715), np.uint32(16)


def seeds(keys: Sequence[int]) -> NDArray[np.uint64]:
    """``SeedSequence(key).generate_state(3, uint64)`` of every key, (keys, 3).

    O'Neill's hash (2015), as NumPy documents it: a pool of four words, each mixed into the three others.
    """
    pool = np.zeros((4, len(keys)), np.uint32)
    pool[:2] = np.array(keys, "<u8").view("<u4").reshape(-1, 2).T
    pool = _hashed(pool, _MIXED_IN[:5])
    for source in range(4):
        others = [place for place in range(4) if place != source]
        mixed = _LEFT * pool[others] - _RIGHT * _hashed(pool[source], _MIXED_IN[4 + 3 * source : 8 + 3 * source])
        pool[others] = mixed ^ (mixed >> _HALF)
    words = _hashed(pool[[0, 1, 2, 3, 0, 1]], _PUT_OUT)
    return words.T.astype("<u4", order="C").view("<u8").astype(np.uint64)


def _hashed(words: NDArray[np.uint32], powers: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Each line of words (lines, keys) with a power of its own, then times the next one."""
    words = (words ^ powers[:-1]) * powers[1:]
    return words ^ (words >> _HALF)

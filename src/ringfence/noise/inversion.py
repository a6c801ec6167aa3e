"""Exact integers from Philox's words, the same on every device: one 32-bit word decides nearly all, 64 the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.noise.philox import HALF, words
from ringfence.stats.lattice import Thresholds, thresholds

TOP: Final = 16
"""Bits of a word that find its cell in the guide."""

AT_ONCE: Final = 1 << 16
"""Counters worked on together: few enough for a cache, many enough for all cores."""

LOW: Final = 0xFFFFFFFF
NEVER: Final = 1 << 32
"""An edge above every word."""
MANY: Final = (1 << 34) - 1
"""Stands for several edges."""


@final
@dataclass(frozen=True, eq=False)
class Guide:
    """Where a word's search begins: by its upper TOP bits, in which cell it lies.

    cells: int64 (2^TOP,); the upper 30 bits count the thresholds whose upper halves lie below the cell, the lower 34
    are its edge: the upper half of the one threshold within, NEVER where there is none, MANY where only a search tells.
    values: int64 (n,), the thresholds with their upper bit turned over, so that signed numbers keep their order.
    """

    cells: Tensor
    values: Tensor
    table: Thresholds

    def integers(self, first: Tensor) -> tuple[Tensor, Tensor]:
        """Of words (n,) int64 in [0, 2^32), as the upper halves of 64-bit words: the integers, and where (indices) the
        lower half is needed to tell."""
        found = self.cells.index_select(0, first >> (32 - TOP))
        edge = found & MANY
        undecided = torch.nonzero((edge == first).logical_or_(edge == MANY)).view(-1)
        return (found >> 34).add_(edge < first).add_(self.table.lowest), undecided


@lru_cache(maxsize=8)
def guide(family: str, scale: float, lattice: int) -> Guide:
    """The guide to the thresholds of a law."""
    table = thresholds(family, scale, lattice)
    upper = (table.values >> HALF).astype(np.int64)
    starts = np.arange(1 << TOP, dtype=np.int64) << (32 - TOP)
    base = np.searchsorted(upper, starts, side="left")
    within = np.searchsorted(upper, starts + (1 << (32 - TOP)), side="left") - base
    edge = np.where(within == 0, NEVER, np.where(within == 1, np.append(upper, NEVER)[base], MANY))
    signed = (table.values ^ np.uint64(1 << 63)).view(np.int64)
    return Guide(torch.from_numpy((base << 34) | edge), torch.from_numpy(signed), table)


@lru_cache(maxsize=8)
def guide_on(family: str, scale: float, lattice: int, device: str) -> Guide:
    """The same with its tensors on a device."""
    found = guide(family, scale, lattice)
    return Guide(found.cells.to(device), found.values.to(device), found.table)


@torch.inference_mode()
def fill_integers(out: Tensor, key: int, law: tuple[str, float, int]) -> None:
    """Overwrite out (rows, size), float32 on the CPU, with the integers of a 64-bit key; row r is the draw in place r.

    Numbers i, i + Q, i + 2Q, i + 3Q of a row come from the block at the counter (i, row, 0, 0), Q = ceil(size / 4),
    and where 32 bits do not tell, the next 32 from the block at (i, row, 1, 0).
    """
    found, size = guide(*law), out.shape[1]
    quarter = -(-size // 4)
    together = max(1, AT_ONCE // quarter)
    for start in range(0, len(out), together):
        rows = out[start : start + together]
        first = _words(key, quarter, start, len(rows)).view(-1)
        integers, undecided = found.integers(first)
        if len(undecided):
            place, number = np.divmod(undecided.numpy(), 4 * quarter)
            upper = first[undecided].numpy().astype(np.uint64)
            lower = second_words(key, number, place + start, quarter)
            integers[undecided] = torch.from_numpy(found.table.of_words((upper << HALF) | lower))
        rows.copy_(integers.view(len(rows), -1)[:, :size])


def second_words(key: int, number: NDArray[np.int64], place: NDArray[np.int64], quarter: int) -> NDArray[np.uint64]:
    """The lower halves of single numbers in their places: (n,) each."""
    blocks = words(key, (number % quarter).astype(np.uint64), place.astype(np.uint64), 1)
    return blocks[number // quarter, np.arange(len(number))]


def _words(key: int, quarter: int, start: int, rows: int) -> Tensor:
    """Philox-4x32-10 (Salmon et al. 2011) at the counters (i, place, 0, 0): int64 (rows, 4 quarter), in [0, 2^32).

    Products of 32-bit words take 64 bits; as signed numbers they have the same bits.
    """
    a = torch.arange(quarter).expand(rows, quarter)
    b = torch.arange(start, start + rows)[:, None].expand(rows, quarter)
    c = d = torch.zeros((), dtype=torch.int64)
    low, high = key & LOW, key >> 32
    for _ in range(10):
        even, odd = a * 0xD2511F53, c * 0xCD9E8D57
        a = (odd >> 32).bitwise_and_(LOW).bitwise_xor(b).bitwise_xor_(low)
        c = (even >> 32).bitwise_and_(LOW).bitwise_xor_(d).bitwise_xor_(high)
        b, d = odd.bitwise_and_(LOW), even.bitwise_and_(LOW)
        low, high = (low + 0x9E3779B9) & LOW, (high + 0xBB67AE85) & LOW
    return torch.cat([a, b, c, d], 1)


def are_drawn_by(
    add_integers: Callable[[Tensor, Tensor, Tensor, tuple[str, float, int]], None], device: torch.device
) -> bool:
    """Whether a kernel (exact_kernel.py) draws the integers of fill_integers, every one of them.

    100,000 numbers of a law whose tails take 64 bits for one in three thousand; half of all keys are negative there.
    """
    law, size, rows = ("gaussian", 0.25, 255), 1003, 25
    keys = [1, (1 << 63) - 1, 1 << 63, (1 << 64) - 5]
    wanted = torch.empty(len(keys), rows, size)
    for key, part in zip(keys, wanted, strict=True):
        fill_integers(part, key, law)
    table = torch.zeros(3, len(keys) * rows, dtype=torch.int64)
    table[1] = torch.from_numpy(np.array(keys, np.uint64).view(np.int64)).repeat_interleave(rows)
    table[2] = torch.arange(rows).repeat(len(keys))
    out = torch.empty(len(keys) * rows, size, device=device)
    add_integers(out, torch.full((1, size), 128.0, device=device), table.to(device), law)
    return torch.equal(out.cpu(), (wanted.view(-1, size) + 128).mul_(1 / law[2]))

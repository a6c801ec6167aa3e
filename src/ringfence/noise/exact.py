"""Exact noise: inputs as whole steps of a lattice, and integers added to them, the same on every device.

Whole numbers below 2^24 are exact in float32, and so are their sums: nothing is rounded before the network. The
integers come from Philox's words: one of 32 bits decides nearly all, 64 bits the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.errors import DataError
from ringfence.noise.checked import checked_kernel
from ringfence.noise.in_threads import in_threads
from ringfence.noise.philox import HALF, rows_of_words, signed, words
from ringfence.stats.lattice import Thresholds, thresholds

FARTHEST: Final = 1 << 20
"""Steps that an input may lie from 0: with noise of at most 2^20 steps on top every sum is exact, and float32's three
roundings on the way to input units and back, of 2^-24 each, never lead to another step."""

WRITTEN: Final = 5e-7
"""By how much six decimals miss a number: four times what scaling or normalising images and back, in float32, leaves.
What is farther from a lattice point, by more than this and float32's own rounding, is not it."""

STILL: Final = 1e-3
"""Steps that this may be, where steps are small."""

IN_FLOATS: Final = "float noise: `noise_form` float (in Python: rf.Gaussian(sigma, form='float'))"
"""What to do where inputs are on no lattice."""

TOP: Final = 16
"""Bits of a word that tell its integer, unless a threshold lies among the words that have them."""

AT_ONCE: Final = 1 << 15
"""Counters worked on together: few enough for a cache, many enough that calling costs little. Less than that for each
thread is left to one: two would spend their time handing Python's lock to each other."""

TELLING: Final = (48, 106, 583, (1 << 64) - 151, (1 << 64) - 223, (1 << 64) - 908)
"""Keys that were looked for: in 25 rows of 1003 numbers of each are words in both tails and, for every family at sigma
0.25 in steps of 1/255, words that are the upper half of a threshold. Half of them are negative as signed numbers."""


class Law(NamedTuple):
    """Of noise in whole steps: its family, its scale, and the steps of the lattice per unit."""

    family: str
    scale: float
    lattice: int

    @property
    def steps(self) -> float:
        """How many steps the scale is."""
        return self.scale * self.lattice


@final
@dataclass(frozen=True, eq=False)
class Guide:
    """What 32 bits tell of the integers of a law.

    sure: float32 (2^TOP,); the integer of all words with these upper bits, NaN where they have several.
    upper: int64 (n,), the upper halves of the thresholds.
    """

    sure: NDArray[np.float32]
    upper: NDArray[np.int64]
    table: Thresholds

    def integers(self, first: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Of words in [0, 2^32), as the upper halves of 64-bit words: the integers, and where (indices of the flat
        array) the lower half is needed to tell.

        TOP bits tell all but a few in a hundred, which are searched for.
        """
        found = np.take(self.sure, first >> (32 - TOP), mode="clip")  # every cell is there: no need to look
        flat, rest = found.reshape(-1), np.flatnonzero(np.isnan(found))
        words = first.reshape(-1)[rest]
        below = np.searchsorted(self.upper, words, side="left")
        flat[rest] = below + self.table.lowest
        return found, rest[self.upper[np.minimum(below, len(self.upper) - 1)] == words]

    def landmarks(self, far: int) -> NDArray[np.int64]:
        """The words of all thresholds that lie farther from both ends than this, and the outermost words that do."""
        first, last = far + 1, (1 << 32) - 2 - far
        return np.concatenate([[first], self.upper[(first <= self.upper) & (self.upper <= last)], [last]])

    def surrounds(self, words: NDArray[np.int64], guessed: NDArray[np.float32]) -> bool:
        """Whether each guess lies between the two thresholds about its word, threshold k being at k + 1/2, or no more
        than a quarter of a step outside.

        If that holds for the landmarks, then by monotony for all words between them up to rounding, for which another
        quarter is left: the threshold nearest to a guess is one of the two about its word.
        """
        below = np.searchsorted(self.upper, words, side="right") + self.table.lowest - 0.5
        above = np.searchsorted(self.upper, words, side="left") + self.table.lowest + 0.5
        return bool(((below - 0.25 < guessed) & (guessed < above + 0.25)).all())


@lru_cache(maxsize=8)
def guide(family: str, scale: float, lattice: int) -> Guide:
    """The guide to the thresholds of a law."""
    table = thresholds(family, scale, lattice)
    upper = (table.values >> HALF).astype(np.int64)
    ends = np.searchsorted(upper, np.arange((1 << TOP) + 1, dtype=np.int64) << (32 - TOP), side="left")
    sure = np.where(ends[:-1] == ends[1:], ends[:-1] + table.lowest, np.nan).astype(np.float32)
    return Guide(sure, upper, table)


@torch.inference_mode()
def fill_integers(out: Tensor, key: int, law: Law) -> None:
    """Overwrite out (rows, size), float32 on the CPU, with the integers of a 64-bit key; row r is the draw in place r.

    Numbers i, i + Q, i + 2Q, i + 3Q of a row come from the block at the counter (i, row, 0, 0), Q = ceil(size / 4),
    and where 32 bits do not tell, the next 32 from the block at (i, row, 1, 0).
    """
    found, size, numbers = guide(*law), out.shape[1], out.numpy()
    quarter = -(-size // 4)
    threads = max(1, min(torch.get_num_threads(), len(out) * quarter // AT_ONCE))
    together = max(1, min(AT_ONCE // quarter, -(-len(out) // threads)))

    def draw(start: int) -> list[NDArray[np.int64]]:
        """Some rows from this one on; the place, number and word of those that 32 bits do not tell."""
        rows, rest = numbers[start : start + together], []
        for part, first in enumerate(rows_of_words(key, quarter, start, len(rows))):
            integers, undecided = found.integers(first)
            there = rows[:, part * quarter : (part + 1) * quarter]
            there[:] = integers[:, : there.shape[1]]
            if len(undecided):
                place, number = np.divmod(undecided, quarter)
                rest.append(np.stack([place + start, number + part * quarter, first.reshape(-1)[undecided]]))
        return rest

    starts = range(0, len(out), together)
    if rest := list(chain.from_iterable(in_threads(draw, starts, threads))):
        place, number, upper = np.concatenate(rest, 1)
        place, number, upper = (one[number < size] for one in (place, number, upper))
        lower = second_words(key, number, place, quarter)
        numbers[place, number] = found.table.of_words((upper.astype(np.uint64) << HALF) | lower)


def second_words(key: int, number: NDArray[np.int64], place: NDArray[np.int64], quarter: int) -> NDArray[np.uint64]:
    """The lower halves of single numbers in their places: (n,) each."""
    blocks = words(key, (number % quarter).astype(np.uint64), place.astype(np.uint64), 1)
    return blocks[number // quarter, np.arange(len(number))]


def are_drawn_by(
    add_integers: Callable[[Tensor, Tensor, Tensor, Law], None], device: torch.device, family: str = "gaussian"
) -> bool:
    """Whether a kernel (exact_kernel.py) draws the integers of fill_integers, every one of them.

    150,000 numbers, among them some that 32 bits do not tell.
    """
    law, size, rows = Law(family, 0.25, 255), 1003, 25
    wanted = torch.empty(len(TELLING), rows, size, dtype=torch.float32)
    for key, part in zip(TELLING, wanted, strict=True):
        fill_integers(part, key, law)
    table = torch.zeros(3, len(TELLING) * rows, dtype=torch.int64)
    table[1] = torch.from_numpy(np.array(TELLING, np.uint64).view(np.int64)).repeat_interleave(rows)
    table[2] = torch.arange(rows).repeat(len(TELLING))
    out = torch.empty(len(TELLING) * rows, size, dtype=torch.float32, device=device)
    add_integers(out, torch.full_like(out[:1], 128.0), table.to(device), law)
    return torch.equal(out.cpu(), (wanted.view(-1, size) + 128).mul_(1 / law.lattice))


def in_steps(x: Tensor, lattice: int) -> Tensor:
    """The lattice point next to x (any shape) as whole numbers of steps, float32."""
    return torch.round(x.to(torch.float32) * lattice)


def onto_lattice(name: str, x: Tensor, lattice: int) -> Tensor:
    """x, as the network would see it without noise; refused where it is no lattice point, up to how those are written.

    A certificate about a point nearby would be none about x.
    """
    steps = in_steps(x, lattice)
    if not bool((steps.abs() <= FARTHEST).all()):
        rule = f"exact noise needs finite inputs between -{FARTHEST / lattice:g} and {FARTHEST / lattice:g}"
        received = f"values from {float(x.min()):g} to {float(x.max()):g}"
        raise DataError(name, rule, received, f"Scale the inputs to [0, 1], or use {IN_FLOATS}.")
    off = (x.double() * lattice - steps).abs()
    outside = off > min(STILL, WRITTEN * lattice) + 2.0**-23 * steps.abs()
    if bool(outside.any()):
        rule = f"exact noise needs inputs on the lattice of step 1/{lattice}"
        worst = float(x.flatten()[int(off.argmax())])
        received = f"{int(outside.sum())} of {x.numel()} values off it, such as {worst:.9g}"
        remedy = (
            f"Round what should lie on it yourself: (x * {lattice}).round() / {lattice}; or give 8-bit images, another"
        )
        raise DataError(name, rule, received, f"{remedy} `lattice`, or use {IN_FLOATS}.")
    return steps * (1 / lattice)


def inside(point: Tensor, centre: Tensor, radius: float, lattice: int, order: int = 2) -> Tensor:
    """A lattice point near point (*shape) that lies in the ball around centre, a lattice point: the nearest one, or
    where that is outside the one with every step rounded towards the centre, which is nearer than point itself."""
    middle = in_steps(centre, lattice)
    away = point.to(torch.float32) * lattice - middle
    nearest = torch.round(away)
    steps = nearest if float(nearest.double().norm(order)) <= radius * lattice else torch.trunc(away)
    return (middle + steps) * (1 / lattice)


def fill_steps(out: Tensor, key: int, law: Law) -> None:
    """Overwrite out (rows, *shape), float32 and contiguous, with the integers of this 64-bit key."""
    flat = out.view(len(out), -1)
    kernel = _kernel(out.device, law)
    if out.device.type == "cpu":
        fill_integers(flat, key, law)
    elif kernel is None:  # slow, and the same integers
        host = torch.empty(flat.shape, dtype=torch.float32)
        fill_integers(host, key, law)
        flat.copy_(host)
    else:
        rows = torch.arange(len(out))
        table = torch.stack([torch.zeros_like(rows), torch.full_like(rows, signed(key)), rows]).to(out.device)
        kernel.add_integers(flat, torch.zeros_like(flat[:1]), table, law)
        flat.mul_(law.lattice).round_()


def add_steps(out: Tensor, clean: Tensor, table: Tensor, law: Law) -> bool:
    """Noise.add in one kernel: clean (slots, *shape) in steps, out in input units; False where there is no kernel."""
    kernel = _kernel(out.device, law)
    if kernel is not None:
        kernel.add_integers(out, clean, table, law)
    return kernel is not None


def _kernel(device: torch.device, law: Law) -> Any:
    """Checked for the family of this law alone: every other takes a fraction of a second of a start."""
    return checked_kernel("ringfence.noise.exact_kernel", device, law.family)

"""Noise on a lattice, drawn exactly: which integer a 64-bit word stands for, to the last bit.

The integers are K = round(e/h) for real noise e and a step h, so that X + K is the lattice point next to x + e for
every lattice point x = hX: a certificate about real noise then speaks of what is computed, and no rounding of a sum is
left that an attacker could use (Voracek and Hein 2023 attack those of floating point).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import ArgumentError

if TYPE_CHECKING:
    from mpmath import mpf

WORD: Final = 1 << 64
BITS: Final = 192
"""Of the arithmetic that finds the thresholds; a threshold next to an integer may still be off by one unit of 2^-64,
which the correction below has room for."""

MOST: Final = 1 << 20
"""Thresholds of either tail, at most: beyond it a table of them is not what anyone wants."""

NOTHING_BEYOND: Final = 64
"""Standard deviations beyond which every tail is far below 2^-64."""


@final
@dataclass(frozen=True, eq=False)
class Thresholds:
    """K = lowest + the number of thresholds that are at most W, for a uniform 64-bit word W.

    values: uint64 (n,), ascending: floor(2^64 P(K <= k)) for k = lowest, lowest + 1, ..., those that are 0 or 2^64
    left out and 2^64 - 1 kept once.
    """

    lowest: int
    values: NDArray[np.uint64]

    @property
    def highest(self) -> int:
        """The largest integer that is ever drawn."""
        return self.lowest + len(self.values)

    @property
    def eta(self) -> float:
        """At least twice the total variation between one coordinate as drawn and its law: what a probability about d
        coordinates is lowered (or raised) by is d eta, for the sampler at x and again at x'."""
        return (len(self.values) + 5) / WORD

    def of_words(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The integers of 64-bit words, elementwise; slow, and the definition."""
        return self.lowest + np.searchsorted(self.values, words, side="right").astype(np.int64)

    def probabilities(self) -> NDArray[np.float64]:
        """Of lowest, ..., highest as drawn (n + 1,), for tests of a sampler."""
        ends = [0, *(int(one) for one in self.values), WORD]
        return np.array([(after - before) / WORD for before, after in itertools.pairwise(ends)])


def gaussian_tail(x: mpf) -> mpf:
    """P(e > x) for a standard normal e, in mpmath's arithmetic."""
    import mpmath

    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def uniform_tail(x: mpf) -> mpf:
    """P(e > x), x > 0, for uniform e of standard deviation 1, which lies in [-sqrt 3, sqrt 3]."""
    import mpmath

    return max(1 - x / mpmath.sqrt(3), mpmath.mpf(0)) / 2


def laplace_tail(x: mpf) -> mpf:
    """P(e > x), x > 0, for Laplace e of standard deviation 1."""
    import mpmath

    return mpmath.exp(-mpmath.sqrt(2) * x) / 2


TAILS: dict[str, Callable[[mpf], mpf]] = {"gaussian": gaussian_tail, "uniform": uniform_tail, "laplace": laplace_tail}
"""P(e > x), x > 0, of one coordinate at scale 1 for every symmetric family that can be drawn exactly."""


def check_lattice(lattice: int) -> None:
    """Refuse what is no number of steps."""
    if not (type(lattice) is int and 1 <= lattice <= 1 << 16):
        rule, remedy = "must be a whole number of steps per unit, at most 65536", "Use 255 for 8-bit images."
        raise ArgumentError("lattice", rule, lattice, remedy)


@lru_cache(maxsize=16)
def thresholds(family: str, scale: float, lattice: int) -> Thresholds:
    """Those of a symmetric family at a scale, on the lattice of step 1/lattice.

    By symmetry P(K <= -k-1) = P(K > k) = tail((k + 1/2) h / scale): one evaluation gives two thresholds.
    """
    import mpmath

    check_lattice(lattice)
    if family not in TAILS:
        rule, remedy = f"must be one of {', '.join(TAILS)} to be drawn exactly", "Use float noise."
        raise ArgumentError("noise", rule, family, remedy)
    below: list[int] = []
    above: list[int] = []
    with mpmath.workprec(BITS):
        step = 1 / (mpmath.mpf(lattice) * mpmath.mpf(scale))

        def tail(k: int) -> mpf:
            """2^64 P(K > k)."""
            x = (k + mpmath.mpf(1) / 2) * step
            return WORD * TAILS[family](x) if x < NOTHING_BEYOND else mpmath.mpf(0)

        if tail(MOST) >= 1:  # asked first: finding that many takes minutes
            rule, remedy = f"must need at most {2 * MOST} thresholds", "Use a smaller sigma or a coarser lattice."
            raise ArgumentError("lattice", rule, f"{lattice} at scale {scale:g}", remedy)
        while not below or below[-1]:
            found = tail(len(below))
            below.append(int(mpmath.floor(found)))
            above.append(WORD - int(mpmath.ceil(found)))
    kept_below = [one for one in reversed(below) if one]
    kept_above = [one for one in above if one < WORD]
    values = np.array(kept_below + kept_above, np.uint64)
    return Thresholds(-len(kept_below), values)

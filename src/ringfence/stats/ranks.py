"""Rank tests: is the class counted most often the likelier one?"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.stats.special import betainc
from ringfence.types import FloatArray


def rank_test(n_a: ArrayLike, n_b: ArrayLike) -> FloatArray:
    """Two-sided p-value 2 P(Bin(n_a + n_b, 1/2) >= n_a), at most 1; arrays broadcast (Hung and Fithian, 2019).

    The two sides pay for having picked the pair (top, runner-up) from the same counts: at one side the test
    fails at nearly twice its level.
    """
    return np.minimum(2 * rank_test_one_sided(n_a, n_b), 1.0)


def rank_test_one_sided(n_a: ArrayLike, n_b: ArrayLike) -> FloatArray:
    """One-sided p-value P(Bin(n_a + n_b, 1/2) >= n_a) for a pair fixed before the counts were seen; rounded up."""
    wins, losses = np.asarray(n_a, np.float64), np.asarray(n_b, np.float64)
    if not ((wins >= 0) & (losses >= 0)).all():
        raise ArgumentError("n_a, n_b", "counts must be at least 0", f"{n_a!r}, {n_b!r}", "Pass two counts of votes.")
    tail = betainc(np.maximum(wins, 1), losses + 1, 0.5)
    tail = tail * (1 + 1e-14 + 1e-16 * (wins + losses))  # betainc's own error, measured to 1e9 draws
    return np.where(wins > 0, np.minimum(tail, 1.0), 1.0)

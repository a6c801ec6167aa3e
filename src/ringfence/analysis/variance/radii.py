"""The radii CERTIFY will report for a known success probability (paper 000, equation 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom

from ringfence.mechanisms import one_sided
from ringfence.stats import clopper_pearson_lower
from ringfence.types import FloatArray


@final
@dataclass(frozen=True, eq=False)
class RadiusDistribution:
    """radii ascending (m,), the first 0 for abstention; probabilities (m,), their sum 1."""

    radii: FloatArray
    probabilities: FloatArray

    @property
    def mean(self) -> float:
        """Expected radius, abstention counted as 0."""
        return float(self.radii @ self.probabilities)

    @property
    def abstention(self) -> float:
        """P(no radius is certified)."""
        return float(self.probabilities[0])

    def at_least(self, radius: float) -> float:
        """P(R >= radius) for a positive radius."""
        return float(self.probabilities[self.radii >= radius].sum())


def certified_radii(n: int, alpha: float, sigma: float) -> FloatArray:
    """Radius for n1 = 0..n successes (n+1,): sigma PhiInv(L(n1, n, alpha)), 0 where L <= 1/2; rounded down."""
    return _unit_radii(n, alpha) * sigma


@lru_cache(maxsize=32)
def _unit_radii(n: int, alpha: float) -> FloatArray:
    """The radii at sigma = 1; read-only because they are shared."""
    # Half the draws or fewer never certify, so only the upper half is inverted.
    first = n // 2 + 1
    lower = clopper_pearson_lower(np.arange(first, n + 1), n, alpha)
    radii = np.zeros(n + 1)
    radii[first:] = one_sided(lower, 1.0 - lower, 1.0)
    radii.flags.writeable = False
    return radii


def radius_distribution(p: ArrayLike, n: int, alpha: float, sigma: float) -> RadiusDistribution:
    """P(R = sigma PhiInv(L(n1, n, alpha))) = Binom(n1; n, p), averaged over the success probabilities p (any shape).

    The class is taken as already chosen, rightly; all counts that certify nothing are one outcome, radius 0.
    """
    successes = np.atleast_1d(np.asarray(p, np.float64)).ravel()
    radii, counts = certified_radii(n, alpha, sigma), np.arange(n + 1)
    mass = np.zeros(n + 1)
    for success in successes:
        mass += binom.pmf(counts, n, success) / len(successes)
    certified = radii > 0
    return RadiusDistribution(np.append(0.0, radii[certified]), np.append(mass[~certified].sum(), mass[certified]))


def expected_radius(p: ArrayLike, n: int, alpha: float, sigma: float) -> FloatArray:
    """Mean radius CERTIFY reports at success probability p (any shape) with n draws, abstention counted as 0."""
    successes = np.asarray(p, np.float64)
    means = [radius_distribution(success, n, alpha, sigma).mean for success in successes.ravel()]
    return np.array(means).reshape(successes.shape)

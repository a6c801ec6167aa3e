"""Lower bounds on P(right class under noise) from moments of the label's scores (paper 001, appendix D.2 and D.4).

All assume label scores that are independent and identically distributed over members, symmetric about their mean;
members that see the same noise are not independent, so these bounds explain trends and certify nothing.
lam, p: with probability 1-p no wrong class has more than lam times what the label leaves (definitions 8 to 10).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions.forms import Form, check_form, check_probability, checked_weights
from ringfence.errors import ArgumentError


def portion(lam: float) -> float:
    """Lam = lam / (1 + lam): the label wins once its score exceeds this."""
    if not 0 < lam <= 1:
        raise ArgumentError("lam", "must lie in (0, 1]", lam, "It is a share of what the label leaves.")
    return lam / (1 + lam)


def weight_concentration(weights: ArrayLike) -> float:
    """dw = ||w||_2^2 / ||w||_1^2: 1/N for equal weights, 1 for a single member."""
    values = checked_weights(weights)
    return float((values**2).sum() / values.sum() ** 2)


def single_bound(mean: float, deviation: float, lam: float, p: float) -> float:
    """1 - p - s0^2 / (2 (mu - Lam)^2) for one model, proposition D.1; 0 where that is negative or mu <= Lam."""
    return _chebyshev(mean, deviation**2, lam, p)


def weighted_bound(mean: float, deviation: float, lam: float, p: float, weights: ArrayLike) -> float:
    """1 - p - dw s0^2 / (2 (mu - Lam1)^2), theorem 6."""
    return _chebyshev(mean, weight_concentration(weights) * deviation**2, lam, p)


def weighted_hoeffding_bound(mean: float, lam: float, p: float, weights: ArrayLike) -> float:
    """1 - p - exp(-2 (mu - Lam1)^2 / dw) for scores in [0, 1]: better for many members, needs no symmetry."""
    check_probability("p", p)
    gap = mean - portion(lam)
    return max(0.0, 1 - p - float(np.exp(-2 * gap**2 / weight_concentration(weights)))) if gap > 0 else 0.0


def max_margin_bound(mean: float, minimum_deviation: float, lam: float, p: float) -> float:
    """1 - p - sf^2 / (2 (mu - Lam2)^2), theorem 7; sf^2 = Var(min_i of the label's scores)."""
    return _chebyshev(mean, minimum_deviation**2, lam, p)


def uniform_single_bound(low: float, high: float, lam: float, p: float) -> float:
    """1 - p - clip((Lam3 - a) / (b - a), 0, 1) for scores uniform on [a, b] = [low, high], proposition D.2."""
    check_probability("p", p)
    _check_interval(low, high)
    return max(0.0, 1 - p - float(np.clip((portion(lam) - low) / (high - low), 0.0, 1.0)))


def uniform_weighted_bound(
    low: float, high: float, lam: float, p: float, weights: ArrayLike, form: Form = "sound"
) -> float:
    """1 - p - dw K1^2 / 24, K1 = (b-a) / (mu - Lam1); theorem 8 prints 12, twice what theorem 6 gives."""
    check_form(form)
    _check_interval(low, high)
    factor = 1.0 if form == "sound" else 2.0
    variance = factor * weight_concentration(weights) * (high - low) ** 2 / 12
    return _chebyshev((low + high) / 2, variance, lam, p)


def uniform_max_margin_bound(low: float, high: float, lam: float, p: float, members: int) -> float:
    """1 - p - cN K2^2 / 4, K2 = (b-a) / (mu - Lam2), cN = 2/(N+1) (2/(N+2) - 1/(N+1)), theorem 9."""
    _check_interval(low, high)
    return max_margin_bound((low + high) / 2, uniform_minimum_deviation(low, high, members), lam, p)


def uniform_minimum_deviation(low: float, high: float, members: int) -> float:
    """sf = (b-a) sqrt(N / ((N+1)^2 (N+2))): deviation of the smallest of N scores uniform on [a, b]."""
    if members < 1:
        raise ArgumentError("members", "must be at least 1", members, "Give the number of members.")
    return float((high - low) * np.sqrt(members / (members + 2)) / (members + 1))


def _chebyshev(mean: float, variance: float, lam: float, p: float) -> float:
    """1 - p - variance / (2 gap^2): lemma D.1, Chebyshev for one side of a symmetric variable."""
    check_probability("p", p)
    gap = mean - portion(lam)
    return max(0.0, 1 - p - variance / (2 * gap**2)) if gap > 0 else 0.0


def _check_interval(low: float, high: float) -> None:
    if not 0 <= low < high <= 1:
        raise ArgumentError("low, high", "must satisfy 0 <= low < high <= 1", (low, high), "Scores are probabilities.")

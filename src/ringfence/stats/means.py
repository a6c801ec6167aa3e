"""One-sided confidence bounds on the mean of variables in [0, 1], from samples or from their histogram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.stats.binomial import check_alpha
from ringfence.types import FloatArray, IntArray

_SHAVE = 1e-12
"""Added to every margin: far above rounding errors, far below any margin."""

BETS: FloatArray = np.geomspace(3e-5, 1.0, 32) * (1 - 1e-9)
"""Fixed fractions c of the largest admissible bet; fixed before any data, so their mean capital is a fair game."""


def hoeffding_lower(mean: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """Lower bound mean - sqrt(ln(1/alpha) / 2n) (Hoeffding, 1963); arrays broadcast."""
    check_alpha(alpha)
    average, draws = _checked_mean(mean, n, least=1)
    margin = np.sqrt(-np.log(alpha) / (2 * draws))
    return np.maximum(average - margin - _SHAVE, 0.0)


def hoeffding_upper(mean: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """Upper bound mean + sqrt(ln(1/alpha) / 2n) (Hoeffding, 1963); arrays broadcast."""
    return _mirrored(hoeffding_lower(1.0 - np.asarray(mean, np.float64), n, alpha))


def empirical_bernstein_lower(mean: ArrayLike, variance: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """Lower bound mean - sqrt(2 V ln(2/alpha) / n) - 7 ln(2/alpha) / (3(n-1)); arrays broadcast.

    variance is the unbiased sample variance V, n at least 2 (Maurer and Pontil, 2009, theorem 4).
    """
    check_alpha(alpha)
    average, draws = _checked_mean(mean, n, least=2)
    spread = np.asarray(variance, np.float64)
    if not (spread >= 0).all():
        raise ArgumentError("variance", "must be at least 0", variance, "Pass the unbiased sample variance.")
    log_term = np.log(2.0 / np.asarray(alpha, np.float64))
    margin = np.sqrt(2 * spread * log_term / draws) + 7 * log_term / (3 * (draws - 1))
    return np.maximum(average - margin - _SHAVE, 0.0)


def empirical_bernstein_upper(mean: ArrayLike, variance: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """Upper bound mean + sqrt(2 V ln(2/alpha) / n) + 7 ln(2/alpha) / (3(n-1)); arrays broadcast."""
    return _mirrored(empirical_bernstein_lower(1.0 - np.asarray(mean, np.float64), variance, n, alpha))


def betting_lower(values: ArrayLike, counts: ArrayLike, alpha: float) -> FloatArray:
    """Lower bound on a mean from a histogram: values (bins,), counts (..., bins) -> (...,).

    The largest m at which the mean over c in BETS of prod_i (1 - c + c x_i / m) still reaches 1/alpha
    (betting against "the mean is m"; Waudby-Smith and Ramdas, 2024). The bets are constant, so the capital
    depends on the histogram alone, not on the order of the draws.

    ln capital is convex and decreasing in ln m, so each Newton step, from wherever it starts, lands on the
    safe side of the root and then climbs towards it: stopping at any step is sound.
    """
    check_alpha(alpha)
    scores, histogram = np.asarray(values, np.float64), np.asarray(counts)
    if not ((scores >= 0) & (scores <= 1)).all() or not (histogram >= 0).all() or histogram.shape[-1:] != scores.shape:
        raise ArgumentError(
            "values, counts", "values in [0,1] (bins,) and counts >= 0 (..., bins)", "other", "Pass one count per bin."
        )
    rows = histogram.reshape(-1, scores.size)
    # One row at a time: a sum's rounding must not depend on which other rows happen to be there.
    bounds = [_betting_row(scores, row, alpha) for row in rows]
    return np.array(bounds, np.float64).reshape(histogram.shape[:-1])


def betting_upper(values: ArrayLike, counts: ArrayLike, alpha: float) -> FloatArray:
    """Upper bound on a mean from a histogram: one minus the lower bound on the mean of 1 - x."""
    return _mirrored(betting_lower(1.0 - np.asarray(values, np.float64), counts, alpha))


def _betting_row(scores: FloatArray, row: IntArray, alpha: float) -> float:
    """The bound of one histogram (bins,); empty bins cost nothing."""
    used = row > 0
    scores, weights = scores[used], row[used].astype(np.float64)
    total = float(weights @ scores)
    if not total > 0:
        return 0.0  # a row of zeros proves nothing
    draws = float(weights.sum())
    mean = total / draws
    goal = -np.log(alpha) + 1e-9
    # Any start is sound; this one, Bernstein's margin, is close.
    variance = max(float(weights @ scores**2) / draws - mean**2, 0.0)
    m = max(mean - np.sqrt(2 * variance * (goal + 3) / draws) - 2 * goal / draws, mean / 10)
    bound = 0.0
    for _ in range(60):
        surplus, slope = _log_capital(scores / m, weights)
        surplus -= goal
        step = float(np.clip(-surplus / slope, -5.0, 5.0))
        if surplus >= 0:
            bound = max(bound, m)
            if step <= 1e-10:
                break
        m = m * float(np.exp(step))
    return bound * (1 - 1e-9)


def _log_capital(ratios: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Logarithm of the capital at m, from ratios x/m and counts (bins,), and its derivative in ln m."""
    won = BETS[:, None] * ratios
    factors = (1.0 - BETS)[:, None] + won
    logs = np.log(factors) @ weights
    slopes = -((won / factors) @ weights)
    top = float(logs.max())
    shares = np.exp(logs - top)
    return top + float(np.log(shares.mean())), float((shares * slopes).sum() / shares.sum())


def _mirrored(lower: FloatArray) -> FloatArray:
    """One minus a lower bound, rounded up."""
    return np.minimum(np.nextafter(1.0 - lower, 2.0), 1.0)


def _checked_mean(mean: ArrayLike, n: ArrayLike, least: int) -> tuple[FloatArray, FloatArray]:
    average, draws = np.asarray(mean, np.float64), np.asarray(n, np.float64)
    if not ((average >= 0) & (average <= 1)).all():
        raise ArgumentError("mean", "must lie in [0, 1]", mean, "Scale the variable to [0, 1] first.")
    if not (draws >= least).all():
        raise ArgumentError("n", f"must be at least {least}", n, "Draw more samples.")
    return average, draws


MeanBound = Literal["betting", "bernstein", "hoeffding"]


def histogram_lower(values: FloatArray, counts: IntArray, alpha: float, bound: MeanBound) -> FloatArray:
    """Lower bound on the mean (...,) of variables in [0,1]: values (bins,), counts (..., bins)."""
    return _of_histogram((betting_lower, hoeffding_lower, empirical_bernstein_lower), values, counts, alpha, bound)


def histogram_upper(values: FloatArray, counts: IntArray, alpha: float, bound: MeanBound) -> FloatArray:
    """Upper bound on the mean (...,): values (bins,), counts (..., bins)."""
    return _of_histogram((betting_upper, hoeffding_upper, empirical_bernstein_upper), values, counts, alpha, bound)


def _of_histogram(
    bounds: tuple[Callable[..., FloatArray], ...], values: FloatArray, counts: IntArray, alpha: float, bound: MeanBound
) -> FloatArray:
    """By that one of three bounds: on the histogram, on its mean, on its mean and variance."""
    betting, hoeffding, bernstein = bounds
    if bound == "betting":
        return betting(values, counts, alpha)
    mean, variance, n = moments(values, counts)
    return hoeffding(mean, n, alpha) if bound == "hoeffding" else bernstein(mean, variance, n, alpha)


def moments(values: FloatArray, counts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, unbiased variance and number of draws (...,) of histograms (..., bins)."""
    n = counts.sum(-1).astype(np.float64)
    mean = (counts @ values) / n
    centred = ((values - mean[..., None]) ** 2 * counts).sum(-1)
    return np.clip(mean, 0.0, 1.0), centred / np.maximum(n - 1, 1), n

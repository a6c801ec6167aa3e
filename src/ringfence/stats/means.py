"""One-sided confidence bounds on the mean of variables in [0, 1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.stats.binomial import check_alpha
from ringfence.types import FloatArray, IntArray

_SHAVE = 1e-12
"""Added to every margin: far above rounding errors, far below any margin."""

_CELLS = 1 << 18
"""Numbers held at once by the betting bound."""

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
    chunk = max(_CELLS // (BETS.size * scores.size), 1)
    parts = [_betting_rows(scores, rows[i : i + chunk], alpha) for i in range(0, len(rows), chunk)]
    return np.concatenate([np.zeros(0), *parts]).reshape(histogram.shape[:-1])


def betting_upper(values: ArrayLike, counts: ArrayLike, alpha: float) -> FloatArray:
    """Upper bound on a mean from a histogram: one minus the lower bound on the mean of 1 - x."""
    return _mirrored(betting_lower(1.0 - np.asarray(values, np.float64), counts, alpha))


def _betting_rows(scores: FloatArray, rows: IntArray, alpha: float) -> FloatArray:
    """The bounds (rows,) of a few histograms (rows, bins); bins empty in all of them cost nothing."""
    used = rows.any(axis=0)
    scores, weights = scores[used], rows[:, used].astype(np.float64)
    bounds = np.zeros(len(weights))
    active = np.flatnonzero(weights @ scores > 0)  # a row of zeros proves nothing
    weights = weights[active]
    draws = weights.sum(axis=1)
    mean = weights @ scores / draws
    goal = -np.log(alpha) + 1e-9
    # Any start is sound; this one, Bernstein's margin, is close.
    variance = np.maximum(weights @ scores**2 / draws - mean**2, 0.0)
    m = np.maximum(mean - np.sqrt(2 * variance * (goal + 3) / draws) - 2 * goal / draws, mean / 10)
    for _ in range(60):
        if not active.size:
            break
        surplus, slope = _log_capital(scores / m[:, None], weights)
        surplus -= goal
        proved = surplus >= 0
        bounds[active[proved]] = np.maximum(bounds[active[proved]], m[proved])
        step = np.clip(-surplus / slope, -5.0, 5.0)
        going = ~proved | (step > 1e-10)
        active, weights, m = active[going], weights[going], (m * np.exp(step))[going]
    return bounds * (1 - 1e-9)


def _log_capital(ratios: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of the capital at m, from ratios x/m and counts (rows, bins), and its derivative in ln m; (rows,)."""
    won = BETS[:, None] * ratios[:, None, :]
    factors = (1.0 - BETS)[:, None] + won
    logs = (np.log(factors) @ weights[:, :, None])[:, :, 0]
    slopes = -((won / factors) @ weights[:, :, None])[:, :, 0]
    top = logs.max(axis=1, keepdims=True)
    shares = np.exp(logs - top)
    return top[:, 0] + np.log(shares.mean(axis=1)), (shares * slopes).sum(axis=1) / shares.sum(axis=1)


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

"""Bounds on a mean from an integer histogram, by the name of the inequality."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ringfence.stats.means import (
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    hoeffding_lower,
    hoeffding_upper,
)
from ringfence.types import FloatArray, IntArray

MeanBound = Literal["betting", "bernstein", "hoeffding"]


def histogram_lower(values: FloatArray, counts: IntArray, alpha: float, bound: MeanBound) -> FloatArray:
    """Lower bound on the mean (...,) of variables in [0,1]: values (bins,), counts (..., bins)."""
    if bound == "betting":
        return betting_lower(values, counts, alpha)
    mean, variance, n = moments(values, counts)
    if bound == "hoeffding":
        return hoeffding_lower(mean, n, alpha)
    return empirical_bernstein_lower(mean, variance, n, alpha)


def histogram_upper(values: FloatArray, counts: IntArray, alpha: float, bound: MeanBound) -> FloatArray:
    """Upper bound on the mean (...,): values (bins,), counts (..., bins)."""
    if bound == "betting":
        return betting_upper(values, counts, alpha)
    mean, variance, n = moments(values, counts)
    if bound == "hoeffding":
        return hoeffding_upper(mean, n, alpha)
    return empirical_bernstein_upper(mean, variance, n, alpha)


def moments(values: FloatArray, counts: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean, unbiased variance and number of draws (...,) of histograms (..., bins)."""
    n = counts.sum(-1).astype(np.float64)
    mean = (counts @ values) / n
    centred = ((values - mean[..., None]) ** 2 * counts).sum(-1)
    return np.clip(mean, 0.0, 1.0), centred / np.maximum(n - 1, 1), n

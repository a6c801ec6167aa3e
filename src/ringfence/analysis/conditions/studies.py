"""The numerical studies of paper 001's figures 4, 5 and 6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions.forms import Form
from ringfence.analysis.conditions.statistical import (
    uniform_max_margin_bound,
    uniform_single_bound,
    uniform_weighted_bound,
)
from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided
from ringfence.stats import clopper_pearson_lower
from ringfence.types import FloatArray, IntArray


@final
@dataclass(frozen=True, eq=False)
class RadiusDifference:
    """Figure 4, one entry per sampled instance: lam1/lam2 and the radius of max-margin minus that of the average."""

    transferability: FloatArray
    difference: FloatArray


def figure4_data(
    members: int,
    instances: int = 2000,
    seed: int = 0,
    *,
    lam2: float = 0.95,
    lam1: tuple[float, float] = (0.8, 0.95),
    sigma: float = 1.0,
    n: int = 100_000,
    alpha: float = 0.001,
) -> RadiusDifference:
    """Radius difference against lam1/lam2 for label scores uniform on [a, b], a ~ U[.3, 1), b ~ U[a, 1).

    The average is right where the mean score reaches Lam1, max-margin where (max + min)/2 reaches Lam2: the
    probabilities are known exactly (Irwin-Hall; mid-range), the counts are drawn from them.
    """
    rng = np.random.default_rng(seed)
    first = rng.uniform(*lam1, instances)
    low = rng.uniform(0.3, 1.0, instances)
    high = rng.uniform(low, 1.0)
    place_mean = (first / (1 + first) - low) / (high - low)
    place_range = (lam2 / (1 + lam2) - low) / (high - low)
    weighted = np.array([1 - mean_of_uniforms_cdf(u, members) for u in place_mean])
    widest = 1 - midrange_of_uniforms_cdf(place_range, members)
    radii = _radius(rng.binomial(n, np.stack([weighted, widest])), n, alpha, sigma)
    return RadiusDifference(first / lam2, radii[1] - radii[0])


@final
@dataclass(frozen=True, eq=False)
class RadiusByMembers:
    """Figure 5. members (m,); weighted and max_margin (m,): radii from the uniform bounds; single: one number."""

    members: IntArray
    weighted: FloatArray
    max_margin: FloatArray
    single: float


def figure5_data(
    low: float = 0.2,
    high: float = 0.3,
    lams: tuple[float, float, float] = (0.29, 0.31, 0.30),
    *,
    members: Sequence[int] = tuple(range(2, 31)),
    p: float = 0.01,
    sigma: float = 1.0,
    n: int = 100_000,
    alpha: float = 0.001,
    form: Form = "sound",
) -> RadiusByMembers:
    """Radius against the number of members from the uniform bounds; lams: of weighted, max-margin, single."""
    weighted = [uniform_weighted_bound(low, high, lams[0], p, np.ones(count), form) for count in members]
    widest = [uniform_max_margin_bound(low, high, lams[1], p, count) for count in members]
    single = uniform_single_bound(low, high, lams[2], p)
    counts = np.floor(n * np.array([*weighted, *widest, single])).astype(np.int64)
    radii = _radius(counts, n, alpha, sigma)
    size = len(members)
    return RadiusByMembers(np.array(members, np.int64), radii[:size], radii[size : 2 * size], float(radii[-1]))


@final
@dataclass(frozen=True, eq=False)
class RocCurve:
    """Figure 6. false_positive and true_positive (m,) from (0, 0) to (1, 1); area: P(higher statistic if positive)."""

    false_positive: FloatArray
    true_positive: FloatArray
    area: float


def figure6_data(statistic: ArrayLike, max_margin_better: ArrayLike) -> RocCurve:
    """ROC of "max-margin has the larger radius" by the threshold on comparison_statistic; both (inputs,)."""
    values, better = np.asarray(statistic, np.float64), np.asarray(max_margin_better, np.bool_)
    values, better = values[~np.isnan(values)], better[~np.isnan(values)]
    if better.all() or not better.any():
        received = f"{better.sum()} of {better.size}"
        raise ArgumentError("max_margin_better", "must hold both outcomes", received, "Use more inputs.")
    cuts = np.unique(values)[::-1]
    above = values >= cuts[:, None]
    true = np.append(0.0, (above & better).sum(1) / better.sum())
    false = np.append(0.0, (above & ~better).sum(1) / (~better).sum())
    return RocCurve(false, true, float(np.trapezoid(true, false)))


def mean_of_uniforms_cdf(u: float, count: int) -> float:
    """P(mean of count uniforms on [0, 1] <= u), Irwin and Hall; from the nearer end, where the sum is stable."""
    if u <= 0 or u >= 1:
        return float(u >= 1)
    if u > 0.5:
        return 1 - mean_of_uniforms_cdf(1 - u, count)
    x = u * count
    terms = [(-1) ** k * comb(count, k) * (x - k) ** count for k in range(int(x) + 1)]
    return float(min(max(sum(terms) / factorial(count), 0.0), 1.0))


def midrange_of_uniforms_cdf(u: FloatArray, count: int) -> FloatArray:
    """P((max + min)/2 of count uniforms on [0, 1] <= u) = (2u)^count / 2 up to 1/2, and by symmetry above."""
    inside = np.clip(u, 0.0, 1.0)
    near = (2 * np.minimum(inside, 1 - inside)) ** count / 2
    return np.where(inside <= 0.5, near, 1 - near)


def _radius(counts: IntArray, n: int, alpha: float, sigma: float) -> FloatArray:
    """What CERTIFY reports for these counts; 0 for abstention."""
    lower = clopper_pearson_lower(counts, n, alpha)
    return one_sided(lower, 1.0 - lower, sigma)

"""Figures 4, 5 and 6 of Yang et al. 2022: bounds for uniform scores, the numerical studies, and drawings.

The bounds and comparisons are special cases of those in ``score_bounds.py``, for label scores that are
uniform on [low, high]; ``form="paper"`` has the printed factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, factorial
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import ArrayLike
from score_bounds import Preference, check_probability, max_margin_bound, portion, preferred_ensemble, weighted_bound

from ringfence.analysis.conditions import Form, check_form
from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided
from ringfence.stats import clopper_pearson_lower
from ringfence.types import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    return weighted_bound((low + high) / 2, (high - low) * np.sqrt(factor / 12), lam, p, weights)


def uniform_max_margin_bound(low: float, high: float, lam: float, p: float, members: int) -> float:
    """1 - p - cN K2^2 / 4, K2 = (b-a) / (mu - Lam2), cN = 2/(N+1) (2/(N+2) - 1/(N+1)), theorem 9."""
    _check_interval(low, high)
    return max_margin_bound((low + high) / 2, uniform_minimum_deviation(low, high, members), lam, p)


def uniform_minimum_deviation(low: float, high: float, members: int) -> float:
    """sf = (b-a) sqrt(N / ((N+1)^2 (N+2))): deviation of the smallest of N scores uniform on [a, b]."""
    if members < 1:
        raise ArgumentError("members", "must be at least 1", members, "Give the number of members.")
    return float((high - low) * np.sqrt(members / (members + 2)) / (members + 1))


def _check_interval(low: float, high: float) -> None:
    if not 0 <= low < high <= 1:
        raise ArgumentError("low, high", "must satisfy 0 <= low < high <= 1", (low, high), "Scores are probabilities.")


def uniform_deviation_ratio(members: int, form: Form = "sound") -> float:
    """s0/sf = (N+1) sqrt((N+2) / (12 N)) for uniform scores; the paper's 12 in theorem 8 turns this 12 into 6."""
    check_form(form)
    return float((members + 1) * np.sqrt((members + 2) / ((12 if form == "sound" else 6) * members)))


def uniform_preferred_ensemble(lam1: float, lam2: float, mean: float, members: int, form: Form = "sound") -> Preference:
    """Corollary 6's first two cases: corollary 5 with the deviations of uniform scores."""
    return preferred_ensemble(lam1, lam2, mean, uniform_deviation_ratio(members, form), 1.0, members)


def always_max_margin_above(mean: float, lam2: float, form: Form = "sound") -> float:
    """Uniform scores: with more than 12 (1 - Lam2/mu)^(-2) - 2 members max-margin wins for all lam1; paper prints 6."""
    check_form(form)
    gap = 1 - portion(lam2) / mean
    if gap <= 0:
        raise ArgumentError("mean", "must exceed lam2/(1+lam2)", mean, "Below that no bound says anything.")
    return (12 if form == "sound" else 6) / gap**2 - 2


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


def plot_figure4(data: RadiusDifference, ax: Axes) -> None:
    """Radius difference against transferability: red where max-margin is larger, blue where the average is."""
    colours = np.where(data.difference > 0, "tab:red", "tab:blue")
    ax.scatter(data.transferability, data.difference, c=colours, s=6)
    ax.axhline(0.0, color="black", linewidth=0.8)
    ax.set(xlabel=r"$\lambda_1/\lambda_2$", ylabel="radius of max-margin minus weighted")


def plot_figure5(data: RadiusByMembers, ax: Axes) -> None:
    """Radius against the number of members; the single model is a line."""
    ax.plot(data.members, data.weighted, label="weighted")
    ax.plot(data.members, data.max_margin, label="max-margin")
    ax.axhline(data.single, color="tab:red", linestyle="--", label="single")
    ax.set(xlabel="members", ylabel="radius")
    ax.legend()


def plot_figure6(data: RocCurve, ax: Axes) -> None:
    """ROC curve with its area."""
    ax.plot(data.false_positive, data.true_positive, label=f"area {data.area:.2f}")
    ax.plot([0, 1], [0, 1], color="black", linewidth=0.8, linestyle=":")
    ax.set(xlabel="false positive rate", ylabel="true positive rate")
    ax.legend()

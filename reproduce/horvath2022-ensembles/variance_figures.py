"""Figures 1, 2, 3 and 7 of Horvath et al. 2022 (ensembles): data, computed rather than simulated, and drawings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, norm

from ringfence.analysis.variance import MarginModel, RadiusDistribution, expected_radius
from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided
from ringfence.stats import clopper_pearson_lower, clopper_pearson_upper
from ringfence.types import FloatArray, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@final
@dataclass(frozen=True, eq=False)
class EnsembleGain:
    """Figure 1. sizes (s,); margins (z,) and density (s, z) of the margin to the runner-up; success and its error (s,);
    radii: one distribution per size; more_draws: the single model's with many draws, for comparison.
    """

    sizes: IntArray
    margins: FloatArray
    density: FloatArray
    success: FloatArray
    success_error: FloatArray
    radii: tuple[RadiusDistribution, ...]
    more_draws: RadiusDistribution


def figure1_data(
    model: MarginModel,
    sizes: Sequence[int] = (1, 5, 10, 50),
    *,
    n: int = 1000,
    alpha: float = 0.001,
    sigma: float = 0.25,
    many: int = 100_000,
) -> EnsembleGain:
    """Margins, success probability and radii of soft votes of several sizes, over training and noise."""
    place = model.runner_up
    centre = model.margin_mean[place]
    spread = np.sqrt([model.margin_covariance(k)[place, place] for k in sizes])
    margins = np.linspace(centre - 4 * spread.max(), centre + 4 * spread.max(), 401)
    success = np.array([model.success_probability(k) for k in sizes])
    return EnsembleGain(
        sizes=np.array(sizes, np.int64),
        margins=margins,
        density=norm.pdf(margins, centre, spread[:, None]),
        success=success[:, 0],
        success_error=success[:, 1],
        radii=tuple(model.radius_distribution(k, n, alpha, sigma) for k in sizes),
        more_draws=model.radius_distribution(1, many, alpha, sigma),
    )


@final
@dataclass(frozen=True, eq=False)
class ExpectedRadii:
    """Figure 2. success (p,); draws (n,); radius (p, n): CERTIFY's mean radius, and limit (p,): sigma PhiInv(p)."""

    success: FloatArray
    draws: IntArray
    radius: FloatArray
    limit: FloatArray


def figure2_data(
    success: Sequence[float] = (0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0),
    draws: Sequence[int] = (100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    *,
    alpha: float = 0.001,
    sigma: float = 0.25,
) -> ExpectedRadii:
    """Expected certified radius against the number of draws, for true success probabilities."""
    p = np.array(success, np.float64)
    radius = np.stack([expected_radius(p, n, alpha, sigma) for n in draws], axis=1)
    return ExpectedRadii(p, np.array(draws, np.int64), radius, one_sided(p, 1 - p, sigma))


@final
@dataclass(frozen=True, eq=False)
class StagedCost:
    """Figure 3. success (p,): true probabilities; certified_fixed, certified_staged, gave_up_early, draws_staged: (p,);
    draws_fixed: the n of CERTIFY. The draws that choose the class are not counted.
    """

    success: FloatArray
    certified_fixed: FloatArray
    certified_staged: FloatArray
    gave_up_early: FloatArray
    draws_staged: FloatArray
    draws_fixed: int


def figure3_data(
    success: ArrayLike | None = None,
    stages: Sequence[int] = (1000, 10_000, 125_000),
    *,
    radius: float = 0.25,
    sigma: float = 0.25,
    alpha: float = 0.001,
    beta: float = 0.0001,
    n: int = 100_000,
) -> StagedCost:
    """CERTIFYADP against CERTIFY at a known radius, as exact probabilities over the true success probability."""
    p = np.linspace(0.5, 1.0, 201) if success is None else np.asarray(success, np.float64)
    needed = float(one_sided.probability_for(radius, sigma))
    running, certified, gave_up, draws = np.ones(len(p)), np.zeros(len(p)), np.zeros(len(p)), np.zeros(len(p))
    for index, size in enumerate(stages):
        draws += running * size
        passed = running * binom.sf(_first(clopper_pearson_lower, size, alpha / len(stages), needed) - 1, size, p)
        stopped = np.zeros(len(p))
        if index + 1 < len(stages):
            open_from = _first(clopper_pearson_upper, size, beta / (len(stages) - 1), needed)
            stopped = running * binom.cdf(open_from - 1, size, p)
        certified, gave_up, running = certified + passed, gave_up + stopped, running - passed - stopped
    fixed = binom.sf(_first(clopper_pearson_lower, n, alpha, needed) - 1, n, p)
    return StagedCost(p, fixed, certified, gave_up, draws, n)


def _first(bound: Callable[[int, int, float], FloatArray], n: int, level: float, needed: float) -> int:
    """Smallest k in 0..n at which a bound, which grows with k, reaches the probability needed; n+1 if it never does."""
    low, high = 0, n + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle, n, level) >= needed else (middle + 1, high)
    return low


@final
@dataclass(frozen=True, eq=False)
class AccuracyBand:
    """Figure 7. radius (r,); mean and deviation (r,) of the certified accuracy over runs."""

    radius: FloatArray
    mean: FloatArray
    deviation: FloatArray

    def band(self, width: float = 3.0) -> tuple[FloatArray, FloatArray]:
        """(lower, upper), cut to [0, 1]."""
        offset = width * self.deviation
        return np.clip(self.mean - offset, 0.0, 1.0), np.clip(self.mean + offset, 0.0, 1.0)


def figure7_data(radii: ArrayLike, correct: ArrayLike, grid: ArrayLike) -> AccuracyBand:
    """Certified accuracy over the radii of grid (r,), mean and deviation over runs that differ by seed.

    radii, correct: (runs, inputs), the certified radius and whether the prediction is the label (abstention: False).
    """
    reached, right, at = np.asarray(radii, np.float64), np.asarray(correct, np.bool_), np.asarray(grid, np.float64)
    if reached.ndim != 2 or reached.shape != right.shape or len(reached) < 2:
        received = f"{reached.shape} and {right.shape}"
        rule = "must have one shape (runs, inputs) with at least two runs"
        raise ArgumentError("radii, correct", rule, received, "Certify the same inputs with models of several seeds.")
    accuracy = (right[:, :, None] & (reached[:, :, None] >= at)).mean(1)
    return AccuracyBand(at, accuracy.mean(0), accuracy.std(0, ddof=1))


def plot_figure1(data: EnsembleGain, axes: Sequence[Axes]) -> None:
    """Three panels: margin density, success probability, distribution of radii."""
    margin, success, radius = axes
    for index, size in enumerate(data.sizes):
        margin.plot(data.margins, data.density[index], label=f"k = {size}")
        shown = data.radii[index]
        radius.step(shown.radii, shown.probabilities.cumsum(), where="post", label=f"k = {size}")
    more = data.more_draws
    radius.step(more.radii, more.probabilities.cumsum(), where="post", linestyle="--", label="k = 1, more draws")
    margin.axvline(0.0, color="black", linewidth=0.8)
    margin.set(xlabel="margin to the runner-up", ylabel="density")
    success.errorbar(data.sizes, data.success, data.success_error, marker="o")
    success.set(xlabel="ensemble size k", ylabel="success probability")
    radius.set(xlabel="certified radius", ylabel="cumulative probability")
    margin.legend()
    radius.legend()


def plot_figure2(data: ExpectedRadii, ax: Axes) -> None:
    """Expected radius against draws, one line per success probability."""
    for index, p in enumerate(data.success):
        ax.plot(data.draws, data.radius[index], marker="o", label=f"$p_A$ = {p:g}")
    ax.set(xscale="log", xlabel="draws n", ylabel="expected certified radius")
    ax.legend()


def plot_figure3(data: StagedCost, axes: Sequence[Axes]) -> None:
    """Two panels: probability of certification and expected draws, over the true success probability."""
    share, cost = axes
    share.plot(data.success, data.certified_fixed, label="fixed")
    share.plot(data.success, data.certified_staged, linestyle="--", label="staged")
    share.set(xlabel="success probability", ylabel="probability of certification")
    cost.plot(data.success, data.draws_staged, label="staged")
    cost.axhline(data.draws_fixed, color="black", linewidth=0.8, label="fixed")
    cost.set(xlabel="success probability", ylabel="expected draws", yscale="log")
    share.legend()
    cost.legend()


def plot_figure7(data: AccuracyBand, ax: Axes, label: str = "") -> None:
    """Mean certified accuracy and its band of three deviations over seeds."""
    lower, upper = data.band()
    (line,) = ax.plot(data.radius, data.mean, label=label or None)
    ax.fill_between(data.radius, lower, upper, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(xlabel="radius", ylabel="certified accuracy")

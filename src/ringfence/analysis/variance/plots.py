"""Drawings of the figures' data on matplotlib Axes; the caller makes and saves the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence.analysis.variance.figures import AccuracyBand, EnsembleGain, ExpectedRadii, StagedCost

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

"""Drawings of ACES on matplotlib Axes; the caller makes and saves the figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ringfence.analysis.aces import Answers, ThetaMetrics
from ringfence.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN = "#1f5fbf", "#d9772b", "#2e8b57"


def plot_frontier(
    points: Sequence[ThetaMetrics], ax: Axes, radius: float | None = None, baseline: Sequence[ThetaMetrics] = ()
) -> None:
    """Natural accuracy against ACR, or against certified accuracy at a radius; a baseline's points name their sigma."""

    def height(point: ThetaMetrics) -> float:
        return 100 * point.certified_accuracy[radius] if radius is not None else point.acr or 0.0

    known = [point for point in points if point.natural_accuracy is not None]
    natural = [100 * (point.natural_accuracy or 0.0) for point in known]
    ax.plot(natural, [height(p) for p in known], color=BLUE, marker="o", markersize=3, label="ACES, by theta")
    named = float("-inf")
    for point, x in zip(known, natural, strict=True):
        if height(point) - named > 0.2 * max(map(height, known)):  # thetas that lie apart, so that labels do not meet
            named = height(point)
            ax.annotate(f"{point.theta:g}", (x, named), xytext=(4, 2), textcoords="offset points", fontsize=7)
    if baseline:
        line = sorted(baseline, key=lambda point: point.theta)
        at = [100 * (point.natural_accuracy or 0.0) for point in line]
        label = "certification network alone, by sigma"
        ax.plot(at, [height(p) for p in line], color=GREEN, marker="^", markersize=5, linestyle=":", label=label)
        for point, x in zip(line, at, strict=True):
            ax.annotate(f"{point.theta:g}", (x, height(point)), xytext=(4, -9), textcoords="offset points", fontsize=7)
    what = "average certified radius" if radius is None else f"certified accuracy at {radius:g} (%)"
    ax.set(xlabel="natural accuracy (%)", ylabel=what)
    ax.legend(fontsize=7)


def plot_medians(medians: FloatArray, certifiable: BoolArray, ax: Axes, what: str) -> None:
    """Inputs by the median of their selector's value, those that are certified and the others (paper 002, figure 3)."""
    bins = np.linspace(0, 1, 26).tolist()
    groups = [medians[certifiable], medians[~certifiable]]
    ax.hist(groups, bins=bins, stacked=True, color=[BLUE, ORANGE], label=[f"certified {what}", "not"])
    ax.set(xlabel="median entropy over the noise", ylabel="inputs", xlim=(0, 1))
    ax.legend(fontsize=7)


def plot_selection(answers: Sequence[Answers], ax: Axes) -> None:
    """Radii of the selection by percentile, negative where the core is selected, 0 for abstentions (figure 6)."""
    from matplotlib import colormaps

    colours = colormaps["viridis"]
    for one in answers:
        signed = np.sort(np.where(one.bit == 1, one.bit_radius, np.where(one.bit == 0, -one.bit_radius, 0.0)))
        at = 100 * (np.arange(len(signed)) + 0.5) / len(signed)
        ax.plot(at, signed, color=colours(0.9 * one.theta), label=f"theta {one.theta:g}", linewidth=1.2)
    ax.axhline(0, color="0.6", linewidth=0.6)
    ax.set(xlabel="percentile of inputs", ylabel="signed radius of the selection", xlim=(0, 100))
    ax.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))

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
APART = 0.07
"""Of the axes' height and width: labels nearer than that to another one are left out."""
MOST_BINS = 25


def plot_frontier(
    points: Sequence[ThetaMetrics], ax: Axes, radius: float | None = None, baseline: Sequence[ThetaMetrics] = ()
) -> None:
    """Natural accuracy against ACR, or against certified accuracy at a radius; a baseline's points name their sigma."""
    what = "average certified radius" if radius is None else f"certified accuracy at {radius:g} (%)"
    ax.set(xlabel="natural accuracy (%)", ylabel=what)
    ax.margins(0.12, 0.08)
    others = sorted(baseline, key=lambda point: point.theta)
    ours, theirs = (_places(some, radius) for some in (points, others))
    ax.plot(*ours.T, color=BLUE, marker="o", markersize=3, label="ACES, by theta")
    if others:
        label = "certification network alone, by sigma"
        ax.plot(*theirs.T, color=GREEN, marker="^", markersize=5, linestyle=":", label=label)
    taken: list[FloatArray] = []
    # The frontier falls to the right and the baseline rises, so that below the one and above the other there is room.
    _name(ax, ours, [f"{point.theta:g}" for point in points], taken, BLUE, -8)
    _name(ax, theirs, [f"{point.theta:g}" for point in others], taken, GREEN, 3)


def plot_medians(medians: FloatArray, certifiable: BoolArray, thetas: Sequence[float], ax: Axes, what: str) -> None:
    """Inputs by the median of their selector's value, those that are certified and the others (ACES, figure 3).

    medians: the smallest threshold that half of the draws reach, so that the grid's thresholds are the only edges.
    """
    grid = np.unique([0.0, *(theta for theta in thetas if theta < medians.max()), medians.max()])
    edges = np.unique([*grid[:: -(-(len(grid) - 1) // MOST_BINS)], medians.max()])
    below = np.zeros(len(edges) - 1)
    for group, colour, name in ((certifiable, BLUE, what), (~certifiable, ORANGE, "others")):
        # A bin holds what lies above its lower and up to its upper edge.
        counts = np.bincount(np.searchsorted(edges, medians[group]) - 1, minlength=len(below))
        ax.bar(edges[:-1], counts, np.diff(edges), below, align="edge", color=colour, label=name)
        below = below + counts
    ax.set(ylabel="inputs", xlim=(0, edges[-1]), ylim=(0, 1.05 * below.max()))
    ax.legend(fontsize=7)


def plot_selection(answers: Sequence[Answers], ax: Axes) -> None:
    """Radii of the selection by percentile, negative where the core is selected, 0 for abstentions (figure 6)."""
    from matplotlib import colormaps

    colours = colormaps["viridis"]
    ax.axhline(0, color="0.6", linewidth=0.6)
    for one in answers[::-1]:  # the largest theta has the highest line, and the highest place in the legend
        signed = np.sort(np.where(one.bit == 1, one.bit_radius, np.where(one.bit == 0, -one.bit_radius, 0.0)))
        at = 100 * (np.arange(len(signed)) + 0.5) / len(signed)
        ax.plot(at, signed, color=colours(0.9 * one.theta), label=f"theta {one.theta:g}", linewidth=1.2)
    ax.set(xlabel="percentile of inputs", ylabel="signed radius of the selection", xlim=(0, 100))
    ax.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _places(points: Sequence[ThetaMetrics], radius: float | None) -> FloatArray:
    """Natural accuracy and height (points, 2)."""
    heights = [point.acr or 0.0 if radius is None else 100 * point.certified_accuracy[radius] for point in points]
    natural = [100 * (point.natural_accuracy or 0.0) for point in points]
    return np.array([natural, heights]).T.reshape(-1, 2)


def _name(
    ax: Axes, places: FloatArray, names: Sequence[str], taken: list[FloatArray], colour: str, above: float
) -> None:
    """Names left of their points and so much above, the ends first, each only where no other name is near."""
    ax.autoscale_view()
    shares = ax.transAxes.inverted().transform(ax.transData.transform(places))
    shares[:, 1] += np.sign(above) * APART / 2
    for at in sorted(range(len(places)), key=lambda at: at not in (0, len(places) - 1)):
        if all((np.abs(shares[at] - other) > APART).any() for other in taken):
            taken.append(shares[at])
            x, y = places[at].tolist()
            ax.annotate(
                names[at], (x, y), (-4, above), textcoords="offset points", ha="right", fontsize=7, color=colour
            )

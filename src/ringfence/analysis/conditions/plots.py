"""Drawings of the studies' data on matplotlib Axes; the caller makes and saves the figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringfence.analysis.conditions.studies import RadiusByMembers, RadiusDifference, RocCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

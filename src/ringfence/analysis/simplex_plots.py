"""Drawings of simplex maps and of a run's points on them, on matplotlib Axes; the caller makes and saves the figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringfence.analysis.simplex import SimplexMap, SimplexPoints

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

COLOURS = {
    "one_sided": "#1f5fbf",
    "renyi": "#c0392b",
    "analytic_dp": "#2e8b57",
    "pixeldp": "#8e5ea2",
    "neyman_pearson": "#222222",
    "none": "#999999",
}
"""One colour per mechanism in every drawing; blue and red are the lines of Cullen et al.'s figures."""


def plot_map(data: SimplexMap, ax: Axes) -> None:
    """Colour is the statistic, white the tie; lines bound where each single mechanism is the largest."""
    from matplotlib.colors import Normalize

    with np.errstate(divide="ignore"):
        shown = np.log2(data.value) if data.statistic == "ratio" else data.value
    finite = shown[np.isfinite(shown)]
    reach = max(float(np.quantile(np.abs(finite), 0.95)), 1e-3) if finite.size else 1.0
    mesh = ax.pcolormesh(
        data.e0, data.e1, np.ma.masked_invalid(shown), cmap="PuOr", norm=Normalize(-reach, reach), shading="nearest"
    )
    mesh.set_rasterized(True)
    bar = ax.figure.colorbar(mesh, ax=ax, extend="both")
    sign, unit = ("/", "") if data.statistic == "ratio" else ("-", f", sigma {data.sigma:g}")
    ax.set_title(f"radius of {data.left} {sign} {data.right}{unit}", fontsize=9)
    if data.statistic == "ratio":
        ticks = np.linspace(-reach, reach, 7).tolist()
        bar.set_ticks(ticks, labels=[f"{2**tick:.2f}" for tick in ticks])
    handles = [*_lone_regions(data, ax), *_borders(data, ax)]
    ax.set(
        xlabel="$E_0$, the largest class probability", ylabel="$E_1$, the second largest", xlim=(0, 1), ylim=(0, 0.5)
    )
    if handles:
        ax.legend(handles=handles, loc="upper left", fontsize=7)


def _lone_regions(data: SimplexMap, ax: Axes) -> list[Artist]:
    """Flat grey where only one of the two certifies: their ratio is infinite or 0 there."""
    from matplotlib.patches import Patch

    if data.statistic != "ratio":
        return []
    handles: list[Artist] = []
    sides = ((data.left, data.left_radius, data.right_radius), (data.right, data.right_radius, data.left_radius))
    for (name, own, other), grey in zip(sides, ("0.55", "0.85"), strict=True):
        alone = data.inside & (own > 0) & (other == 0)
        if alone.any():
            ax.contourf(data.e0, data.e1, alone.astype(float), levels=[0.5, 1.5], colors=[grey])
            handles.append(Patch(color=grey, label=f"only {name} certifies"))
    return handles


def _borders(data: SimplexMap, ax: Axes) -> list[Artist]:
    """Around the region of every mechanism that is the largest somewhere, but not everywhere."""
    from matplotlib.lines import Line2D

    handles: list[Artist] = []
    for name in data.members:
        region = data.largest(name)
        share = float(region[data.inside].mean())
        if 0 < share < 1 and len(data.members) > 1:
            colour = COLOURS.get(name, "black")
            others = np.max([radius for other, radius in data.members.items() if other != name], axis=0)
            lead = np.where(data.inside, data.members[name] - others, np.nan)
            # Two neighbours share their border: dashes over a solid line show both colours.
            style = "dashed" if handles else "solid"
            drawn = np.ma.masked_invalid(lead)
            ax.contour(data.e0, data.e1, drawn, levels=[0.0], colors=[colour], linewidths=1.4, linestyles=[style])
            handles.append(Line2D([], [], color=colour, ls=style, label=f"{name} is the largest: {share:.0%}"))
    return handles


def plot_points(data: SimplexPoints, ax: Axes) -> None:
    """Bounds (p_a, p_b) as dots coloured by the best mechanism; a thin line leads from the empirical means to them."""
    ax.plot(
        np.stack([data.mean_0, data.bound_0]),
        np.stack([data.mean_1, data.bound_1]),
        color="black",
        linewidth=0.4,
        alpha=0.5,
    )
    best, before = np.array(data.best), ax.get_legend()
    dots: list[Artist] = []
    for name in sorted(set(data.best)):
        rows = best == name
        colour = COLOURS.get(name, "black")
        label = f"{name}: {rows.sum()} inputs"
        dot = ax.scatter(data.bound_0[rows], data.bound_1[rows], s=9, color=colour, label=label)
        dot.set(edgecolor="white", linewidth=0.3)
        dots.append(dot)
    if before is not None:
        ax.add_artist(before)  # a second legend would replace the map's
    ax.legend(handles=dots, loc="upper right", fontsize=7, title="largest radius", title_fontsize=7)

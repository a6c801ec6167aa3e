"""Why ensembles enlarge radii: a Gaussian model of the vote's margins under noise (paper 000, section 5)."""

from __future__ import annotations

from ringfence.analysis.variance.figures import (
    AccuracyBand,
    EnsembleGain,
    ExpectedRadii,
    StagedCost,
    figure1_data,
    figure2_data,
    figure3_data,
    figure7_data,
)
from ringfence.analysis.variance.logits import collect_logits
from ringfence.analysis.variance.model import MarginModel, estimate, measured_variance_ratio, variance_ratio
from ringfence.analysis.variance.orthant import positive_orthant
from ringfence.analysis.variance.plots import plot_figure1, plot_figure2, plot_figure3, plot_figure7
from ringfence.analysis.variance.radii import RadiusDistribution, certified_radii, expected_radius, radius_distribution

__all__ = [
    "AccuracyBand",
    "EnsembleGain",
    "ExpectedRadii",
    "MarginModel",
    "RadiusDistribution",
    "StagedCost",
    "certified_radii",
    "collect_logits",
    "estimate",
    "expected_radius",
    "figure1_data",
    "figure2_data",
    "figure3_data",
    "figure7_data",
    "measured_variance_ratio",
    "plot_figure1",
    "plot_figure2",
    "plot_figure3",
    "plot_figure7",
    "positive_orthant",
    "radius_distribution",
    "variance_ratio",
]

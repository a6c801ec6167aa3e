"""When is an ensemble robust, and which one is better? Conditions and bounds of paper 001, in corrected forms.

``form="sound"`` is the default; ``form="paper"`` reproduces the printed statement, also where it fails.
None of this certifies a prediction: the inputs (gradients, moments of scores) are estimates.
"""

from __future__ import annotations

from ringfence.analysis.conditions.comparison import (
    Preference,
    always_max_margin_above,
    preferred_ensemble,
    threshold,
    uniform_deviation_ratio,
    uniform_preferred_ensemble,
)
from ringfence.analysis.conditions.forms import Form, Verdict
from ringfence.analysis.conditions.gain import (
    best_pair_weights,
    ensemble_radius,
    gain_cosine,
    max_margin_coupling,
    smoothness_allowed,
    weighted_coupling,
)
from ringfence.analysis.conditions.gradients import ScoreGradients, score_gradients
from ringfence.analysis.conditions.max_margin import max_margin_verdict, max_min_margin, pair_indicator
from ringfence.analysis.conditions.order import Order, smoothing_order
from ringfence.analysis.conditions.plots import plot_figure4, plot_figure5, plot_figure6
from ringfence.analysis.conditions.portions import ConfidencePortions, comparison_statistic, confidence_portions
from ringfence.analysis.conditions.statistical import (
    max_margin_bound,
    portion,
    single_bound,
    uniform_max_margin_bound,
    uniform_minimum_deviation,
    uniform_single_bound,
    uniform_weighted_bound,
    weight_concentration,
    weighted_bound,
    weighted_hoeffding_bound,
)
from ringfence.analysis.conditions.studies import (
    RadiusByMembers,
    RadiusDifference,
    RocCurve,
    figure4_data,
    figure5_data,
    figure6_data,
)
from ringfence.analysis.conditions.weighted import robustness_indicator, smoothed_smoothness, weighted_verdict

__all__ = [
    "ConfidencePortions",
    "Form",
    "Order",
    "Preference",
    "RadiusByMembers",
    "RadiusDifference",
    "RocCurve",
    "ScoreGradients",
    "Verdict",
    "always_max_margin_above",
    "best_pair_weights",
    "comparison_statistic",
    "confidence_portions",
    "ensemble_radius",
    "figure4_data",
    "figure5_data",
    "figure6_data",
    "gain_cosine",
    "max_margin_bound",
    "max_margin_coupling",
    "max_margin_verdict",
    "max_min_margin",
    "pair_indicator",
    "plot_figure4",
    "plot_figure5",
    "plot_figure6",
    "portion",
    "preferred_ensemble",
    "robustness_indicator",
    "score_gradients",
    "single_bound",
    "smoothed_smoothness",
    "smoothing_order",
    "smoothness_allowed",
    "threshold",
    "uniform_deviation_ratio",
    "uniform_max_margin_bound",
    "uniform_minimum_deviation",
    "uniform_preferred_ensemble",
    "uniform_single_bound",
    "uniform_weighted_bound",
    "weight_concentration",
    "weighted_bound",
    "weighted_coupling",
    "weighted_hoeffding_bound",
    "weighted_verdict",
]

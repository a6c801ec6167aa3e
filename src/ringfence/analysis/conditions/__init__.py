"""When is an ensemble robust, and which one is better? Conditions and bounds of Yang et al. 2022, in corrected forms.

``form="sound"`` is the default; ``form="paper"`` reproduces the printed statement, also where it fails.
None of this certifies a prediction: the inputs (gradients, moments of scores) are estimates.
"""

from __future__ import annotations

from ringfence.analysis.conditions.pairs import (
    Order,
    best_pair_weights,
    ensemble_radius,
    gain_cosine,
    max_margin_coupling,
    smoothing_order,
    smoothness_allowed,
    weighted_coupling,
)
from ringfence.analysis.conditions.statistical import (
    ConfidencePortions,
    Preference,
    comparison_statistic,
    confidence_portions,
    max_margin_bound,
    portion,
    preferred_ensemble,
    single_bound,
    threshold,
    weight_concentration,
    weighted_bound,
    weighted_hoeffding_bound,
)
from ringfence.analysis.conditions.verdicts import (
    Form,
    Verdict,
    max_margin_verdict,
    max_min_margin,
    pair_indicator,
    robustness_indicator,
    smoothed_smoothness,
    weighted_verdict,
)
from ringfence.analysis.member_scores import ScoreGradients, score_gradients

__all__ = [
    "ConfidencePortions",
    "Form",
    "Order",
    "Preference",
    "ScoreGradients",
    "Verdict",
    "best_pair_weights",
    "comparison_statistic",
    "confidence_portions",
    "ensemble_radius",
    "gain_cosine",
    "max_margin_bound",
    "max_margin_coupling",
    "max_margin_verdict",
    "max_min_margin",
    "pair_indicator",
    "portion",
    "preferred_ensemble",
    "robustness_indicator",
    "score_gradients",
    "single_bound",
    "smoothed_smoothness",
    "smoothing_order",
    "smoothness_allowed",
    "threshold",
    "weight_concentration",
    "weighted_bound",
    "weighted_coupling",
    "weighted_hoeffding_bound",
    "weighted_verdict",
]

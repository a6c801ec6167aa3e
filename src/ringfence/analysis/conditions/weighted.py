"""Robustness of weighted ensembles from scores and gradients at an input (paper 001, theorems 1, 2, corollary 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions.forms import (
    Form,
    Verdict,
    check_form,
    check_positive,
    checked_scores,
    checked_weights,
)
from ringfence.types import FloatArray

TIGHT_SMOOTHNESS = 2 * np.exp(-0.5) / np.sqrt(2 * np.pi)
"""2 phi(1) = E max(z^2 - 1, 0): the largest curvature at sigma = 1 of a [0,1] function smoothed by a Gaussian."""


def smoothed_smoothness(sigma: float, form: Form = "sound") -> float:
    """beta of scores in [0, 1] smoothed by N(0, sigma^2 I): 2 phi(1)/sigma^2, reached by a slab; paper: 2/sigma^2."""
    check_form(form)
    check_positive("sigma", sigma)
    return float((TIGHT_SMOOTHNESS if form == "sound" else 2.0) / sigma**2)


def robustness_indicator(differences: ArrayLike, gradients: ArrayLike, weights: ArrayLike, radius: float) -> FloatArray:
    """I_y (classes-1,) = ||sum_j w_j grad f_j^{y0/y}|| / ||w||_1 - sum_j w_j f_j^{y0/y} / (r ||w||_1), equation 6.

    differences (members, classes-1): f^{y0/y} = score of the label minus score of class y, at the input;
    gradients (members, classes-1, d): theirs. For smoothed members both are expectations over the noise.
    """
    scores, slopes = checked_scores(differences, gradients)
    share = checked_weights(weights, len(scores))
    share = share / share.sum()
    check_positive("radius", radius)
    pull = np.linalg.norm(np.einsum("j,jyd->yd", share, slopes), axis=1)
    return np.asarray(pull - share @ scores / radius)


def weighted_verdict(
    differences: ArrayLike,
    gradients: ArrayLike,
    weights: ArrayLike,
    radius: float,
    beta: float,
    form: Form = "sound",
) -> Verdict:
    """Is the weighted ensemble r-robust, its members' scores being beta-smooth in every class? Theorem 1.

    robust if max_y I_y <= -beta r, not robust if max_y I_y > beta r. Section 2.2 prints min_y for both: then one
    harmless class hides a dangerous one. With Monte-Carlo gradients a diagnostic, never a certificate.
    """
    check_form(form)
    indicator = robustness_indicator(differences, gradients, weights, radius)
    decisive = float(indicator.max() if form == "sound" else indicator.min())
    if decisive <= -beta * radius:
        return "robust"
    return "not_robust" if decisive > beta * radius else "undecided"

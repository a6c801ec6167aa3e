"""Robustness of max-margin ensembles from scores and gradients at the input (paper 001, theorems 3 and 4)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions.forms import Verdict, check_positive, checked_scores
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray


def max_min_margin(scores: ArrayLike, label: int) -> FloatArray:
    """Theorem 4 at a point: max_i m_i + min_i m_i, m_i = min_{y != label} f_i^{label/y}; scores (..., members, K).

    Positive: the max-margin ensemble predicts the label. Negative: it does not, provided that the label is among the
    top two classes of every member. Zero is a tie between members, which the order of the members decides.
    """
    values = np.asarray(scores, np.float64)
    margins = values[..., label] - np.delete(values, label, axis=-1).max(-1)
    return np.asarray(margins.max(-1) + margins.min(-1))


def pair_indicator(differences: ArrayLike, gradients: ArrayLike, radius: float) -> FloatArray:
    """J[i, j] (members, members), the largest over classes y1, y2 of
    ||grad f_i^{y0/y1} + grad f_j^{y0/y2}|| - (f_i^{y0/y1} + f_j^{y0/y2}) / r; -inf on the diagonal.

    differences (members, classes-1) and gradients (members, classes-1, d) as for ``robustness_indicator``.
    """
    values, slopes = _checked(differences, gradients)
    check_positive("radius", radius)
    pairs = np.full((len(values), len(values)), -np.inf)
    for i, j in combinations(range(len(values)), 2):
        pull = np.linalg.norm(slopes[i][:, None] + slopes[j][None], axis=-1)
        pairs[i, j] = pairs[j, i] = (pull - (values[i][:, None] + values[j][None]) / radius).max()
    return pairs


def max_margin_verdict(
    differences: ArrayLike, gradients: ArrayLike, radius: float, beta: float, *, top_two: bool = False
) -> Verdict:
    """Is the max-margin ensemble r-robust, its members' scores being beta-smooth in every class?

    Two members (theorem 3): robust if J <= -2 beta r, not robust if J > 2 beta r and top_two.
    More members, from theorem 4's max-min condition: robust if some member i has J[i, j] <= -2 beta r with every other
    j; not robust (if top_two) if the Taylor bound of max_i m_i + min_i m_i is negative in one of the directions that
    are worst for a pair and a pair of classes. For two members these are theorem 3's conditions.
    top_two: the caller knows that the label is among the top two classes of every member in the whole ball; without
    it nothing is ever called not robust. With Monte-Carlo gradients a diagnostic, never a certificate.
    """
    pairs = pair_indicator(differences, gradients, radius)
    if (pairs.max(1) <= -2 * beta * radius).any():
        return "robust"
    if top_two and _lowest_margin(*_checked(differences, gradients), radius) + 2 * beta * radius**2 < 0:
        return "not_robust"
    return "undecided"


def _lowest_margin(values: FloatArray, slopes: FloatArray, radius: float) -> float:
    """Smallest linearised max_i m_i + min_i m_i at distance radius, over the worst directions of all pairs."""
    lowest = np.inf
    for i, j in combinations(range(len(values)), 2):
        pulls = (slopes[i][:, None] + slopes[j][None]).reshape(-1, slopes.shape[2])
        lengths = np.linalg.norm(pulls, axis=1, keepdims=True)
        steps = np.divide(pulls, lengths, out=np.zeros_like(pulls), where=lengths > 0)
        margins = (values - radius * np.einsum("sd,myd->smy", steps, slopes)).min(-1)
        lowest = min(lowest, float((margins.max(1) + margins.min(1)).min()))
    return lowest


def _checked(differences: ArrayLike, gradients: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Scores of at least two members."""
    values, slopes = checked_scores(differences, gradients)
    if len(values) < 2:
        raise ArgumentError("differences", "must hold at least two members", len(values), "Use weighted_verdict.")
    return values, slopes

"""Is an ensemble robust in a ball? Verdicts from scores and gradients at its centre (Yang et al. 2022, theorems 1-4).

``form="sound"`` is the default; ``form="paper"`` reproduces the printed statement, also where it fails. ``judge`` asks
at given inputs of given members. With measured gradients a verdict is a diagnostic, never a certificate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from ringfence.analysis.member_scores import score_gradients
from ringfence.data import Input
from ringfence.errors import ArgumentError, DataError, check_word
from ringfence.progress import Counted, followed
from ringfence.types import FloatArray

Form = Literal["sound", "paper"]
"""sound: the corrected statement; paper: the printed one."""

Verdict = Literal["robust", "not_robust", "undecided"]
"""What a condition says about a ball; undecided lies between the sufficient and the necessary condition."""

TIGHT_SMOOTHNESS = 2 * np.exp(-0.5) / np.sqrt(2 * np.pi)
"""2 phi(1) = E max(z^2 - 1, 0): the largest curvature at sigma = 1 of a [0,1] function smoothed by a Gaussian."""


def check_form(form: str) -> None:
    """Refuse anything but the two forms."""
    check_word("form", form, ("sound", "paper"), "Use sound; paper reproduces the printed formula.")


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a positive finite number."""
    if not 0 < value < np.inf:
        raise ArgumentError(name, "must be a positive number", value, "Give it in the units of the input.")


def checked_weights(weights: ArrayLike, members: int | None = None) -> FloatArray:
    """Weights (members,), non-negative and not all zero; None members takes any length."""
    values = np.asarray(weights, np.float64)
    if values.ndim != 1 or (members is not None and len(values) != members):
        rule = "must be one number per member"
        raise ArgumentError("weights", rule, f"shape {values.shape}", f"Give {members or 'N'} weights.")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise ArgumentError("weights", "must be non-negative and not all zero", weights, "Equal weights are ones.")
    return values


def checked_scores(differences: ArrayLike, gradients: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Differences (members, classes-1) and gradients (members, classes-1, d), finite and of fitting shapes."""
    scores, slopes = np.asarray(differences, np.float64), np.asarray(gradients, np.float64)
    if scores.ndim != 2 or slopes.ndim != 3 or slopes.shape[:2] != scores.shape:
        rule = "must have shapes (members, classes-1) and (members, classes-1, d)"
        received = f"{scores.shape} and {slopes.shape}"
        raise ArgumentError("differences, gradients", rule, received, "score_gradients returns both.")
    if not (np.isfinite(scores).all() and np.isfinite(slopes).all()):
        raise ArgumentError("differences, gradients", "must be finite", "NaN or infinity", "Check the members' scores.")
    return scores, slopes


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
    values, slopes = _at_least_two(differences, gradients)
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
    if top_two and _lowest_margin(*_at_least_two(differences, gradients), radius) + 2 * beta * radius**2 < 0:
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


def _at_least_two(differences: ArrayLike, gradients: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Scores of at least two members."""
    values, slopes = checked_scores(differences, gradients)
    if len(values) < 2:
        raise ArgumentError("differences", "must hold at least two members", len(values), "Use weighted_verdict.")
    return values, slopes


@final
@dataclass(frozen=True)
class Judged:
    """One input: verdicts on the vote by mean softmax and by largest margin, whether all smoothed members are right,
    and the largest cosine of two members' gradients (small where members differ)."""

    input_id: int
    softmax: Verdict
    max_margin: Verdict
    all_right: bool
    cosine: float


def judge(
    members: Sequence[nn.Module],
    inputs: Counted[Input],
    *,
    sigma: float,
    radius: float,
    draws: int = 100,
    seed: int = 0,
) -> list[Judged]:
    """Verdicts of theorems 1, 3 and 4 of Yang et al. 2022 on the smoothed members at every labelled input.

    Scores and gradients are means over so many draws, so a verdict is a diagnostic, never a certificate. Max-margin is
    never called not robust: that needs to know each member's top two classes in the whole ball.
    """
    if len(members) < 2:
        raise ArgumentError("members", "needs at least two members to compare", len(members), "Name more.")
    beta = smoothed_smoothness(sigma)
    found = []
    for item in followed(inputs, "judging"):
        if item.label is None:
            raise DataError("inputs", "need labels", f"input {item.id} without one", "Add labels.")
        at = score_gradients(members, item.x, item.label, sigma=sigma, draws=draws, seed=seed, input_id=item.id)
        both = at.differences, at.gradients
        found.append(
            Judged(
                item.id,
                weighted_verdict(*both, np.ones(len(members)), radius, beta),
                max_margin_verdict(*both, radius, beta),
                bool((at.differences > 0).all()),
                largest_cosine(at.gradients),
            )
        )
    return found


def largest_cosine(gradients: FloatArray) -> float:
    """Largest cosine over pairs of members and classes; gradients (members, classes-1, d)."""
    lengths = np.linalg.norm(gradients, axis=-1, keepdims=True)
    units = np.divide(gradients, lengths, out=np.zeros_like(gradients), where=lengths > 0)
    return float(max((units[i] * units[j]).sum(-1).max() for i, j in combinations(range(len(units)), 2)))


def summary(judged: Sequence[Judged]) -> dict[str, Any]:
    """Inputs, how often each verdict was given, share with all members right, mean cosine; and every input."""
    if not judged:
        raise DataError("inputs", "needs at least one input", "none", "Choose other inputs.")
    return {
        "inputs": len(judged),
        "softmax": dict(Counter(one.softmax for one in judged)),
        "max_margin": dict(Counter(one.max_margin for one in judged)),
        "all_right": float(np.mean([one.all_right for one in judged])),
        "cosine": float(np.mean([one.cosine for one in judged])),
        "each": [asdict(one) for one in judged],
    }

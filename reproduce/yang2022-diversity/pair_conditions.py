"""Two members: how much more robust they are together, and whether to vote before or after smoothing.

Yang et al. 2022, corollaries 1 and 4, in corrected forms.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from score_bounds import check_probability

from ringfence.analysis.conditions import Form, check_form, check_positive, checked_weights
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

Order = Literal["before", "after", "undecided"]
"""The order with the larger radius; after includes equality, undecided occurs in the printed form only."""


def smoothing_order(right: float, p_a: float, p_b: float, p_both: float, form: Form = "sound") -> Order:
    """Compare sigma PhiInv(P(ensemble right)) with (sigma/2)(PhiInv(p_a) + PhiInv(p_b)), ensemble-after-smoothing's.

    p_a, p_b: probabilities (> 1/2) that the members are right; p_both: that both are; right: that the ensemble is
    right GIVEN that exactly one member is. (Given only that they disagree it would be too small with three or more
    classes, where both may be wrong.) P(ensemble right) = p_both + right (p_a + p_b - 2 p_both).
    sound: the comparison itself, equality counted as after. paper: before if right > 1/2 + 1/(2 + 4(p_min - p_both)/d),
    d = |p_a - p_b|; after if right <= 1/2; silent in between.
    """
    check_form(form)
    for name, value in (("right", right), ("p_a", p_a), ("p_b", p_b), ("p_both", p_both)):
        check_probability(name, value)
    low, high = min(p_a, p_b), max(p_a, p_b)
    if low <= 0.5:
        raise ArgumentError("p_a, p_b", "must both exceed 1/2", (p_a, p_b), "The corollary needs two right members.")
    if not max(p_a + p_b - 1, 0.0) - 1e-12 <= p_both <= low:
        rule = "must lie between p_a + p_b - 1 and min(p_a, p_b)"
        raise ArgumentError("p_both", rule, p_both, "Count the draws on which both members are right.")
    if form == "sound":
        before = p_both + right * (p_a + p_b - 2 * p_both)
        return "before" if before > ndtr((ndtri(p_a) + ndtri(p_b)) / 2) else "after"
    # 1/(2 + 4(low - both)/d), written so that d = 0 needs no special case unless the members never differ.
    spread = 2 * (high - low) + 4 * (low - p_both)
    limit = 0.5 + (high - low) / spread if spread > 0 else np.inf
    if right > limit:
        return "before"
    return "after" if right <= 0.5 else "undecided"


def weighted_coupling(differences: ArrayLike, weights: ArrayLike = (1.0, 1.0)) -> float:
    """C_WE = min_y 2 w1 w2 f1 f2 / (w1 f1 + w2 f2)^2 in (0, 1/2]; differences f^{y0/y} (2, classes-1), all positive."""
    first, second = checked_weights(weights, 2)[:, None] * _both_right(differences)
    return float((2 * first * second / (first + second) ** 2).min())


def max_margin_coupling(differences: ArrayLike) -> float:
    """C_MME = min over pairs of classes (y1, y2) of 2 f1 f2 / (f1 + f2)^2, f1 = f_1^{y0/y1}, f2 = f_2^{y0/y2}."""
    first, second = _both_right(differences)
    first = first[:, None]
    return float((2 * first * second / (first + second) ** 2).min())


def best_pair_weights(differences: ArrayLike) -> FloatArray:
    """Weights (2,), sum 1, that maximise C_WE; with two classes w1 : w2 = f2 : f1 and C = 1/2.

    C_y = 1 / (1 + cosh(t + rho_y)), t = ln(w1/w2), rho_y = ln(f1/f2): best is t = minus the mid-range of rho.
    """
    first, second = _both_right(differences)
    rho = np.log(first / second)
    ratio = np.exp(-(rho.max() + rho.min()) / 2)
    return np.array([ratio, 1.0], np.float64) / float(1.0 + ratio)


def ensemble_radius(radius: float, cosine: float, coupling: float, delta: float = 0.0, form: Form = "sound") -> float:
    """R = r (1-D)/(1+D) (1 - C (1 - max(cos, 0)))^(-1/2) for two r-robust members with gradients at most ``cosine``.

    Holds if the smoothness is at most ``smoothness_allowed``. The proof replaces both gradients' norms by their upper
    bounds, which is no upper bound of ||g1 + g2|| once they point apart: the printed form, without the max, claims
    infinity for opposite members that are robust to little more than 2r. So R <= sqrt(2) r.
    """
    check_form(form)
    check_positive("radius", radius)
    _check_share(coupling, delta)
    if not -1 <= cosine <= 1:
        raise ArgumentError("cosine", "must lie in [-1, 1]", cosine, "Give the largest cosine over classes.")
    used = cosine if form == "paper" else max(cosine, 0.0)
    left = 1 - coupling * (1 - used)
    return float(np.inf) if left <= 0 else float(radius * (1 - delta) / (1 + delta) / np.sqrt(left))


def smoothness_allowed(differences: ArrayLike, radius: float, ensemble: float, delta: float) -> float:
    """Largest beta for which ``ensemble_radius`` holds: D min(f1, f2) / (c r)^2, c = max(ensemble/r, 1)."""
    check_positive("radius", radius)
    return float(delta * _both_right(differences).min() / max(ensemble, radius) ** 2)


def gain_cosine(coupling: float, delta: float, form: Form = "sound") -> float:
    """Largest cosine at which the ensemble is at least as robust as its members: 1 - 4D / (C (1+D)^2).

    A negative value promises a gain only in the printed form: in truth no cosine is small enough then (-inf).
    """
    check_form(form)
    _check_share(coupling, delta)
    limit = 1 - 4 * delta / (coupling * (1 + delta) ** 2)
    return float(limit if form == "paper" or limit >= 0 else -np.inf)


def _both_right(differences: ArrayLike) -> FloatArray:
    """Score differences (2, classes-1) of two members that are both right."""
    values = np.asarray(differences, np.float64)
    if values.ndim != 2 or len(values) != 2 or not (np.isfinite(values) & (values > 0)).all():
        rule = "must be positive numbers of shape (2, classes-1)"
        raise ArgumentError("differences", rule, differences, "The corollary needs two members that are right.")
    return values


def _check_share(coupling: float, delta: float) -> None:
    """C in (0, 1/2], D in [0, 1)."""
    if not 0 < coupling <= 0.5:
        raise ArgumentError("coupling", "must lie in (0, 1/2]", coupling, "weighted_coupling computes it.")
    if not 0 <= delta < 1:
        raise ArgumentError("delta", "must lie in [0, 1)", delta, "Linear members have 0.")

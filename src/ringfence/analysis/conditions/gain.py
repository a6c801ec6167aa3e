"""How much more robust two members are together than alone (paper 001, corollary 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.analysis.conditions.forms import Form, check_form, check_positive, checked_weights
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray


def weighted_coupling(differences: ArrayLike, weights: ArrayLike = (1.0, 1.0)) -> float:
    """C_WE = min_y 2 w1 w2 f1 f2 / (w1 f1 + w2 f2)^2 in (0, 1/2]; differences f^{y0/y} (2, classes-1), all positive."""
    first, second = checked_weights(weights, 2)[:, None] * _checked(differences)
    return float((2 * first * second / (first + second) ** 2).min())


def max_margin_coupling(differences: ArrayLike) -> float:
    """C_MME = min over pairs of classes (y1, y2) of 2 f1 f2 / (f1 + f2)^2, f1 = f_1^{y0/y1}, f2 = f_2^{y0/y2}."""
    first, second = _checked(differences)
    first = first[:, None]
    return float((2 * first * second / (first + second) ** 2).min())


def best_pair_weights(differences: ArrayLike) -> FloatArray:
    """Weights (2,), sum 1, that maximise C_WE; with two classes w1 : w2 = f2 : f1 and C = 1/2.

    C_y = 1 / (1 + cosh(t + rho_y)), t = ln(w1/w2), rho_y = ln(f1/f2): best is t = minus the mid-range of rho.
    """
    first, second = _checked(differences)
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
    return float(delta * _checked(differences).min() / max(ensemble, radius) ** 2)


def gain_cosine(coupling: float, delta: float, form: Form = "sound") -> float:
    """Largest cosine at which the ensemble is at least as robust as its members: 1 - 4D / (C (1+D)^2).

    A negative value promises a gain only in the printed form: in truth no cosine is small enough then (-inf).
    """
    check_form(form)
    _check_share(coupling, delta)
    limit = 1 - 4 * delta / (coupling * (1 + delta) ** 2)
    return float(limit if form == "paper" or limit >= 0 else -np.inf)


def _checked(differences: ArrayLike) -> FloatArray:
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

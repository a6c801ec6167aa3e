"""The words shared by the conditions, and the checks of their arguments."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

Form = Literal["sound", "paper"]
"""sound: the corrected statement; paper: the printed one."""

Verdict = Literal["robust", "not_robust", "undecided"]
"""What a condition says about a ball; undecided lies between the sufficient and the necessary condition."""


def check_form(form: str) -> None:
    """Refuse anything but the two forms."""
    if form not in ("sound", "paper"):
        raise ArgumentError("form", "must be sound or paper", form, "Use sound; paper reproduces the printed formula.")


def check_positive(name: str, value: float) -> None:
    """Refuse what is not a positive finite number."""
    if not 0 < value < np.inf:
        raise ArgumentError(name, "must be a positive number", value, "Give it in the units of the input.")


def check_probability(name: str, value: float) -> None:
    """Refuse what is no probability."""
    if not 0 <= value <= 1:
        raise ArgumentError(name, "must lie in [0, 1]", value, "Give a probability.")


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

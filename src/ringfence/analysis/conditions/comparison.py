"""Weighted or max-margin: which statistical bound is larger (paper 001, corollaries 5 and 6)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ringfence.analysis.conditions.forms import Form, check_form
from ringfence.analysis.conditions.statistical import portion
from ringfence.errors import ArgumentError

Preference = Literal["weighted", "max_margin", "undecided"]
"""The ensemble whose bound is larger for ALL weights; undecided: it depends on the weights."""


def threshold(ratio: float, mean: float, lam2: float) -> float:
    """T(q) = (1/lam2) (1 / (q (mu - Lam2) + 1 - mu) - 1), lemma D.4: lam1/lam2 < T(q) iff (mu-Lam2)/(mu-Lam1) < 1/q.

    Decreasing in q, 1 at q = 1; 0 or less says that no lam1 is below it.
    """
    gap = mean - portion(lam2)
    if not (0 < mean < 1 and gap > 0 and ratio > 0):
        rule = "must satisfy lam2/(1+lam2) < mean < 1 and ratio > 0"
        raise ArgumentError("mean, lam2, ratio", rule, (mean, lam2, ratio), "Below that no bound says anything.")
    return (1 / (ratio * gap + 1 - mean) - 1) / lam2


def preferred_ensemble(
    lam1: float, lam2: float, mean: float, deviation: float, minimum_deviation: float, members: int
) -> Preference:
    """Corollary 5: weighted if lam1/lam2 < T(s0/sf), max-margin if lam1/lam2 > T(s0 / (sqrt(N) sf)).

    For equal weights nothing is undecided: there the second threshold decides both ways.
    """
    q = deviation / minimum_deviation
    if lam1 / lam2 < threshold(q, mean, lam2):
        return "weighted"
    return "max_margin" if lam1 / lam2 > threshold(q / np.sqrt(members), mean, lam2) else "undecided"


def uniform_deviation_ratio(members: int, form: Form = "sound") -> float:
    """s0/sf = (N+1) sqrt((N+2) / (12 N)) for uniform scores; the paper's 12 in theorem 8 turns this 12 into 6."""
    check_form(form)
    return float((members + 1) * np.sqrt((members + 2) / ((12 if form == "sound" else 6) * members)))


def uniform_preferred_ensemble(lam1: float, lam2: float, mean: float, members: int, form: Form = "sound") -> Preference:
    """Corollary 6's first two cases: corollary 5 with the deviations of uniform scores."""
    return preferred_ensemble(lam1, lam2, mean, uniform_deviation_ratio(members, form), 1.0, members)


def always_max_margin_above(mean: float, lam2: float, form: Form = "sound") -> float:
    """Uniform scores: with more than 12 (1 - Lam2/mu)^(-2) - 2 members max-margin wins for all lam1; paper prints 6."""
    check_form(form)
    gap = 1 - portion(lam2) / mean
    if gap <= 0:
        raise ArgumentError("mean", "must exceed lam2/(1+lam2)", mean, "Below that no bound says anything.")
    return (12 if form == "sound" else 6) / gap**2 - 2

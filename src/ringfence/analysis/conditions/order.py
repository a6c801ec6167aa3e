"""Ensemble before or after smoothing: which radius is larger for two members (paper 001, corollary 4)."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri

from ringfence.analysis.conditions.forms import Form, check_form, check_probability
from ringfence.errors import ArgumentError

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

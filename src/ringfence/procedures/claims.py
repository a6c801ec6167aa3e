"""From what was proved to what is claimed: bounds become radii, and without a radius nothing is claimed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringfence.mechanisms import Mechanism
from ringfence.procedures.base import Decisions, Given
from ringfence.types import ABSTAIN, FloatArray, IntArray


def claims(
    decisions: Decisions, mechanisms: Sequence[Mechanism], given: Given
) -> tuple[IntArray, FloatArray, dict[str, FloatArray]]:
    """What is claimed: prediction (rows,), radius (rows,) by the first mechanism, and every mechanism's radii.

    All mechanisms read the same (p_a, p_b), so adding some costs no alpha. Radii are divided by the lift's
    norm and rounded down. Without a positive radius nothing is claimed, unless the procedure set the radius.
    """
    if decisions.radius is not None:
        return decisions.prediction, decisions.radius, {}
    down = (1.0 - 1e-9) / given.norm_bound if given.norm_bound != 1.0 else 1.0
    claiming = decisions.prediction != ABSTAIN
    radii: dict[str, FloatArray] = {}
    for mechanism in mechanisms:
        radii[mechanism.name] = np.where(claiming, mechanism(decisions.p_a, decisions.p_b, given.sigma) * down, 0.0)
    radius = radii[mechanisms[0].name]
    return np.where(radius > 0, decisions.prediction, ABSTAIN), radius, radii

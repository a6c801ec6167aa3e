"""The ensemble of certificates of Cullen et al. 2022: the largest of several radii from the SAME bounds."""

from __future__ import annotations

from functools import reduce
from typing import final

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.mechanisms.base import Mechanism
from ringfence.types import FloatArray


@final
class BestOf(Mechanism):
    """Maximum of its members. Costs no alpha because all members read the same pair (p_a, p_b)."""

    def __init__(self, *members: Mechanism) -> None:
        if not members:
            raise ArgumentError("best_of", "needs at least one mechanism", "none", "Write best_of(renyi, one_sided).")
        self.members = members
        self.name = "best_of:" + "+".join(member.name for member in members)

    def _radius(self, p_a: FloatArray, p_b: FloatArray) -> FloatArray:
        return reduce(np.fmax, (member._radius(p_a, p_b) for member in self.members))


def best_of(*members: Mechanism) -> BestOf:
    """The largest radius among members, all computed from the same bounds."""
    return BestOf(*members)

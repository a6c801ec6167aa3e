"""Radii proved in one norm as radii in another, which every certificate has: only results are shown so, never stored.

For q <= p a ball of norm q lies in the ball of norm p with the same radius; for q > p the largest one inside has the
radius r / d^(1/p - 1/q) in d coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from ringfence.errors import ArgumentError, check_word

NORMS: Final = {"l1": 1.0, "l2": 2.0, "linf": math.inf}
"""Exponents by name."""


@final
@dataclass(frozen=True)
class InNorm:
    """The norm in which radii are shown; coordinates: of an input, for runs that do not say how many they have."""

    norm: str
    coordinates: int | None = None

    def __post_init__(self) -> None:
        check_word("norm", self.norm, NORMS, "Use l2.")
        if self.coordinates is not None and (type(self.coordinates) is not int or self.coordinates < 1):
            rule, remedy = "must be a positive number", "Give channels times height times width."
            raise ArgumentError("coordinates", rule, repr(self.coordinates), remedy)

    def factor(self, proved: str, coordinates: int | None = None) -> float:
        """What radii of the proved norm are multiplied by; at most 1, rounded down. coordinates: those a run knows."""
        if proved not in NORMS:
            raise ArgumentError("norm", f"radii in {', '.join(NORMS)} can be converted", proved, "Leave it out.")
        if NORMS[self.norm] <= NORMS[proved]:
            return 1.0
        if None not in (coordinates, self.coordinates) and coordinates != self.coordinates:
            rule, remedy = f"must be those of the run, {coordinates}", "Leave them out."
            raise ArgumentError("coordinates", rule, self.coordinates, remedy)
        dimension = coordinates or self.coordinates
        if dimension is None:
            rule = f"radii in {proved} shrink in {self.norm} by the number of coordinates, which the run does not say"
            remedy = "Give coordinates, e.g. 3072 for 3 x 32 x 32."
            raise ArgumentError("coordinates", rule, "none", remedy)
        exact = dimension ** -(1 / NORMS[proved] - 1 / NORMS[self.norm])
        return 1.0 if dimension == 1 else exact * (1 - 2.0**-50)


def refuse_mixed(norms: Mapping[str, str]) -> None:
    """Refuse to set radii of several norms, by run, beside each other as if they were one kind of length."""
    if len(set(norms.values())) > 1:
        received = ", ".join(f"{run} in {norm}" for run, norm in norms.items())
        remedy = "Show all of them in one with `norm` (and `coordinates`), such as l1, where l2 radii are as large."
        raise ArgumentError("norm", "radii must be of one norm to be compared", received, remedy)

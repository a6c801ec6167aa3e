"""Two kinds of bounds with different method names, so that peeking with a fixed-n bound is a type error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.stats.binomial import check_alpha, clopper_pearson_lower, clopper_pearson_upper
from ringfence.types import FloatArray


class FixedBound(ABC):
    """A bound on a probability, valid at one number of draws that was fixed before the first of them."""

    alpha: float

    @abstractmethod
    def lower_at_fixed_n(self, k: ArrayLike, n: ArrayLike) -> FloatArray:
        """Lower bound from k successes in n draws; arrays broadcast."""

    @abstractmethod
    def upper_at_fixed_n(self, k: ArrayLike, n: ArrayLike) -> FloatArray:
        """Upper bound from k successes in n draws; arrays broadcast."""


class AnytimeBound(ABC):
    """A bound valid at all of its looks at once, so that any of them, or the best, may be reported.

    The looks (how many draws each sees) are fixed before sampling; when to stop is free.
    """

    alpha: float

    @abstractmethod
    def lower_at_look(self, k: ArrayLike, n: ArrayLike, look: ArrayLike) -> FloatArray:
        """Lower bound from k successes in the n draws seen at look 1, 2, ...; arrays broadcast."""

    @abstractmethod
    def upper_at_look(self, k: ArrayLike, n: ArrayLike, look: ArrayLike) -> FloatArray:
        """Upper bound from k successes in the n draws seen at look 1, 2, ...; arrays broadcast."""


@final
@dataclass(frozen=True)
class ClopperPearson(FixedBound):
    """The exact binomial bound, each side at level alpha (Clopper and Pearson, 1934)."""

    alpha: float

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def lower_at_fixed_n(self, k: ArrayLike, n: ArrayLike) -> FloatArray:
        """BetaInv(alpha; k, n-k+1), rounded down."""
        return clopper_pearson_lower(k, n, self.alpha)

    def upper_at_fixed_n(self, k: ArrayLike, n: ArrayLike) -> FloatArray:
        """BetaInv(1-alpha; k+1, n-k), rounded up."""
        return clopper_pearson_upper(k, n, self.alpha)


@final
@dataclass(frozen=True)
class SpendingClopperPearson(AnytimeBound):
    """Clopper-Pearson at level alpha / (look (look+1)), which sums to alpha over infinitely many looks."""

    alpha: float

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def lower_at_look(self, k: ArrayLike, n: ArrayLike, look: ArrayLike) -> FloatArray:
        """BetaInv(alpha / (look (look+1)); k, n-k+1), rounded down; looks are counted from 1."""
        number = np.asarray(look, np.float64)
        if not (number >= 1).all():
            raise ArgumentError("look", "looks are counted from 1", look, "Pass the number of the look.")
        return clopper_pearson_lower(k, n, self.alpha / (number * (number + 1)))

    def upper_at_look(self, k: ArrayLike, n: ArrayLike, look: ArrayLike) -> FloatArray:
        """BetaInv(1 - alpha / (look (look+1)); k+1, n-k), rounded up; looks are counted from 1."""
        return 1.0 - self.lower_at_look(np.asarray(n) - np.asarray(k), n, look)

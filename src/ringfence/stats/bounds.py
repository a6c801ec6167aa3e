"""Two kinds of bounds with different method names, so that peeking with a fixed-n bound is a type error; and the budget
of failure probability from which every bound is paid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import AlphaError, ArgumentError
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


class AlphaLedger:
    """A budget alpha; the sum of what is taken can never exceed it."""

    def __init__(self, alpha: float) -> None:
        check_alpha(alpha)
        self.alpha = alpha
        self._spent: dict[str, float] = {}

    @classmethod
    def shared(cls, alpha: float, *shares: tuple[str, float]) -> Mapping[str, float]:
        """Alpha divided into these shares, each under its name."""
        ledger = cls(alpha)
        for name, amount in shares:
            ledger.take(name, amount)
        return ledger.spent

    @property
    def spent(self) -> Mapping[str, float]:
        """What was taken, by name; a read-only view."""
        return MappingProxyType(self._spent)

    @property
    def left(self) -> float:
        """What may still be taken."""
        return max(self.alpha - fsum(self._spent.values()), 0.0)

    def take(self, name: str, amount: float) -> float:
        """Pay amount for the bound called name and return it; refused where the budget does not hold it.

        Names may be paid more than once; the shares add up. Rounding of the shares' sum is forgiven up to
        1e-12 relative, which the bounds' own safety margin of 1e-6 covers.
        """
        if not amount > 0:
            raise AlphaError(name, "a share of alpha must be positive", amount, "Give every bound its own share.")
        if fsum([*self._spent.values(), amount]) > self.alpha * (1 + 1e-12):
            raise AlphaError(
                name,
                f"the shares must sum to at most alpha={self.alpha:g}, {self.left:g} is left",
                f"{amount:g}",
                "Lower the shares or raise alpha; splits are fixed before sampling.",
            )
        self._spent[name] = fsum([self._spent.get(name, 0.0), amount])
        return amount

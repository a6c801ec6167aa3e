"""AlphaLedger: one budget of failure probability from which every bound is paid."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum
from types import MappingProxyType

from ringfence.errors import AlphaError
from ringfence.stats.binomial import check_alpha


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

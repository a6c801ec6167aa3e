"""Exact one-sided confidence bounds on a success probability (Clopper and Pearson, 1934), and rank tests.

Bounds are of two kinds with different method names, so that peeking with a fixed-n bound is a type error; every one is
paid from a budget of failure probability.
"""

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
from ringfence.settings import SMALLEST_SHARE
from ringfence.stats.special import betainc, betaincc, betainccinv
from ringfence.types import FloatArray, IntArray

_AIM = 1 - 1e-6
"""Share of alpha the inversion aims at: the rest absorbs the error of the incomplete beta function."""
_ACCEPT = 1 - 2e-7
"""Share of alpha a result may use: SciPy's betaincc errs by up to 4e-8 at n = 1e9."""
_TIGHT = 1 - 1e-5
"""Share of alpha a result should use, where there is a number that does."""

SMALLEST = 1e-300
"""Level of a bound: below it the incomplete beta function itself has few digits left."""


def clopper_pearson_lower(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """Lower bound on p from k successes in n draws, false with probability at most alpha; arrays broadcast.

    L = BetaInv(alpha; k, n-k+1), 0 at k = 0, rounded down. It is one minus the upper bound on the
    failure probability, so that it keeps full precision where p is close to 1.
    """
    k, n, alpha = _checked(k, n, alpha)
    failure = _upper(n - k, n, alpha)
    return np.maximum(np.nextafter(1.0 - failure, 0.0), 0.0)


def clopper_pearson_upper(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> FloatArray:
    """Upper bound on p from k successes in n draws, false with probability at most alpha; arrays broadcast.

    U = BetaInv(1-alpha; k+1, n-k), 1 at k = n, rounded up.
    """
    return _upper(*_checked(k, n, alpha))


def _upper(k: IntArray, n: IntArray, alpha: FloatArray) -> FloatArray:
    """Smallest float found at which P(at most k successes) = betaincc(k+1, n-k, u) is certainly at most alpha."""
    a: FloatArray = k + np.float64(1)
    b: FloatArray = np.maximum(n - k, np.float64(1))
    with np.errstate(under="ignore"):
        bound = np.where(k == 0, -np.expm1(np.log(alpha * _AIM) / b), 1.0)
        # The two ends have closed forms; the inversion, which is slow, runs only on the rest.
        inner = (k > 0) & (k < n)
        if inner.any():
            bound[inner] = _invert_distinct(a[inner], b[inner], alpha[inner])
    bound[k >= n] = 1.0
    return np.minimum(np.nextafter(bound, 2.0), 1.0)


def _invert_distinct(a: FloatArray, b: FloatArray, alpha: FloatArray) -> FloatArray:
    """_invert, but where many rows share few counts each pair (a, b) is inverted once."""
    if a.size < 256 or alpha.min() != alpha.max():
        return _invert(a, b, alpha)
    pairs, back = np.unique(a + 1j * b, return_inverse=True)
    return _invert(pairs.real, pairs.imag, np.full(pairs.shape, alpha[0]))[back]


def _invert(a: FloatArray, b: FloatArray, alpha: FloatArray) -> FloatArray:
    """A u with betaincc(a, b, u) <= alpha, verified; each round steps to the safe side where it does not hold."""
    bound: FloatArray = betainccinv(a, b, alpha * _AIM)
    bound[~(bound > 0)] = 1e-300  # whatever the inversion failed at is found by stepping
    below, step = np.zeros_like(bound), 1e-9
    while (short := ~((tail := betaincc(a, b, bound)) <= alpha * _ACCEPT)).any():
        now = below[short] = bound[short]
        bound[short] = np.minimum(np.nextafter(now + step * np.minimum(now, 1.0 - now), 2.0), 1.0)
        step *= 4
    for row in np.flatnonzero(tail < alpha * _TIGHT):
        bound[row] = _tightened(a[row], b[row], alpha[row], below[row], bound[row])
    return bound


def _tightened(a: float, b: float, alpha: float, below: float, bound: float) -> float:
    """A bound nearer to the root than one that holds: halved, as long as it helps; every step back is verified.

    SciPy's inverse misses the root at a = 1000, that is at 999 successes, from 1e6 draws on (at 1e9 by seven times
    a level of 1e-4), and the steps to the safe side, which grow, then go too far.
    """
    while below < (middle := below + (bound - below) / 2) < bound:
        if (tail := betaincc(a, b, middle)) <= alpha * _ACCEPT:
            bound = middle
            if tail >= alpha * _TIGHT:
                break
        else:
            below = middle
    return bound


def _checked(k: ArrayLike, n: ArrayLike, alpha: ArrayLike) -> tuple[IntArray, IntArray, FloatArray]:
    """Counts and levels as arrays of one common shape, refused where they make no sense."""
    with np.errstate(invalid="ignore"):  # no number becomes a negative one, which is refused
        successes, draws, level = np.broadcast_arrays(
            np.asarray(k, np.int64), np.asarray(n, np.int64), np.asarray(alpha, np.float64)
        )
    among = ((successes >= 0) & (successes <= draws)).all()
    if not among or not ((successes == np.asarray(k)) & (draws == np.asarray(n))).all():
        # Cut off, other numbers would count as fewer. Arrays take longer to write down than to invert.
        name, rule = ("k, n", "must be whole numbers") if among else ("k", "0 <= k <= n must hold")
        raise ArgumentError(name, rule, f"k={k!r}, n={n!r}", "Pass counts of successes among n draws.")
    check_alpha(level)
    return successes, draws, level


def check_alpha(alpha: ArrayLike, least: float = SMALLEST) -> None:
    """Refuse failure probabilities outside (0, 1), or too small to be told from 0; least: where parts are spent."""
    level = np.asarray(alpha)
    if not ((level >= least) & (level < 1)).all():
        rule = f"must lie strictly between 0 and 1, and be at least {least:g}"
        raise ArgumentError("alpha", rule, alpha, "A usual choice is 0.001.")


def rank_test(n_a: ArrayLike, n_b: ArrayLike) -> FloatArray:
    """Two-sided p-value 2 P(Bin(n_a + n_b, 1/2) >= n_a), at most 1; arrays broadcast (Hung and Fithian, 2019).

    The two sides pay for having picked the pair (top, runner-up) from the same counts: at one side the test
    fails at nearly twice its level.
    """
    return np.minimum(2 * rank_test_one_sided(n_a, n_b), 1.0)


def rank_test_one_sided(n_a: ArrayLike, n_b: ArrayLike) -> FloatArray:
    """One-sided p-value P(Bin(n_a + n_b, 1/2) >= n_a) for a pair fixed before the counts were seen; rounded up."""
    wins, losses = np.asarray(n_a, np.float64), np.asarray(n_b, np.float64)
    if not ((wins >= 0) & (losses >= 0)).all():
        raise ArgumentError("n_a, n_b", "counts must be at least 0", f"{n_a!r}, {n_b!r}", "Pass two counts of votes.")
    tail = betainc(np.maximum(wins, 1), losses + 1, 0.5)
    tail = tail * (1 + 1e-14 + 1e-16 * (wins + losses))  # betainc's own error, measured to 1e9 draws
    return np.where(wins > 0, np.minimum(tail, 1.0), 1.0)


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
        check_alpha(self.alpha, SMALLEST_SHARE)

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
        if not amount >= SMALLEST:
            rule = f"its share for the {name} must be positive, and at least {SMALLEST:g}"
            raise AlphaError("alpha", rule, amount, "Give every bound a share of its own, or raise it.")
        if fsum([*self._spent.values(), amount]) > self.alpha * (1 + 1e-12):
            raise AlphaError(
                name,
                f"the shares must sum to at most alpha={self.alpha:g}, {self.left:g} is left",
                f"{amount:g}",
                "Lower the shares or raise alpha; splits are fixed before sampling.",
            )
        self._spent[name] = fsum([self._spent.get(name, 0.0), amount])
        return amount

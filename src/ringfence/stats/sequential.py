"""Exact group-sequential binomial tests: certify p > p0 as early as the draws allow.

Error spending (Lan and DeMets, 1983) with boundaries from exact convolutions of binomials instead of a normal
approximation, following only the paths that have not crossed yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.settings import SMALLEST_SHARE
from ringfence.stats.binomial import check_alpha
from ringfence.stats.paths import BinomialPaths
from ringfence.stats.special import betainc, betaln
from ringfence.types import BoolArray, FloatArray, IntArray

_BUDGET = 1 - 1e-9
"""Share of every budget that may be used; the rest covers the rounding of the convolutions (about 1e-12)."""
_DUST = 1e-12
"""Share of the whole budget that each look may cut from the tails of distributions; all of it counts as spent."""

MOST_LOOKS = 100_000
"""Of a schedule: a stored one is whatever somebody wrote, and nobody waits for a billion."""


class _Look(NamedTuple):
    arriving: float
    """Probability of still drawing when this look comes."""
    certified: float
    """Probability of being certified at this look."""


@final
@dataclass(frozen=True, eq=False)
class GroupSequentialDesign:
    """A test of "p > p0" as a table of integers, one entry per look.

    looks (K,): draws seen; certify_at (K,): certify at the first look with successes >= this, looks + 1 where nothing
    suffices; give_up_at (K,): otherwise give up where successes <= this, -1 where never and at the last look.
    The error bound does not rely on giving up: going on instead is allowed.
    """

    p0: float
    alpha: float
    beta: float
    looks: IntArray
    certify_at: IntArray
    give_up_at: IntArray

    def error(self, p: float) -> float:
        """Probability of certifying when the truth is p and nobody gives up: at most alpha for every p <= p0."""
        return sum(look.certified for look in self._walk(p, np.full_like(self.looks, -1)))

    def power(self, p: float) -> float:
        """Probability of certifying when the truth is p."""
        return sum(look.certified for look in self._walk(p, self.give_up_at))

    def expected_draws(self, p: float) -> float:
        """Mean number of draws when the truth is p."""
        waits: list[int] = np.diff(self.looks, prepend=0).tolist()
        return sum(look.arriving * wait for look, wait in zip(self._walk(p, self.give_up_at), waits, strict=False))

    def _walk(self, p: float, give_up_at: IntArray) -> Iterator[_Look]:
        """What happens at each look under p, until hardly a path is left."""
        if not 0 <= p <= 1:
            raise ArgumentError("p", "must lie in [0, 1]", p, "Pass a probability.")
        paths = BinomialPaths(1.0 - p, dust=1e-22)
        for draws, certify, give_up in zip(
            self.looks.tolist(), self.certify_at.tolist(), give_up_at.tolist(), strict=True
        ):
            arriving = paths.mass
            if arriving < 1e-20:
                return
            paths.extend(draws)
            certified = paths.cut_below(draws - certify + 1)
            paths.cut_above(draws - give_up - 1)
            yield _Look(arriving, certified)


@lru_cache(maxsize=512)
def group_sequential_design(
    p0: float, alpha: float, beta: float = 1e-3, n_max: int = 110_000, look: int = 100, ratio: float = 1.1
) -> GroupSequentialDesign:
    """The design that certifies p > p0 wrongly with probability at most alpha; kept in memory.

    p0: the probability to beat, already rounded up; beta: most probability, where p >= p0, of giving up;
    n_max: most draws, rounded up to a multiple of look; look: draws up to the first look, and the step of all others;
    ratio: growth of the looks.

    With t_k = ln(1 + n_k/n_1) / ln(1 + n_K/n_1), at most t_k alpha/2 is spent by look k < K and alpha by the last.
    Futility is the same construction on failures with beta, except that t_k beta, not half of it, is spent by look
    k < K: it has no last look to save for. (This reading reproduces the table of published sample reductions.)
    """
    check_alpha(alpha, SMALLEST_SHARE)
    for name, holds, rule, received in (
        ("p0", 0 < p0 < 1, "must lie strictly between 0 and 1", p0),
        ("beta", 0 < beta < 1, "must lie strictly between 0 and 1", beta),
        ("n_max", n_max >= 1, "must be at least 1", n_max),
        ("look", look >= 1, "must be at least 1", look),
        ("ratio", ratio >= 1, "must be at least 1", ratio),
    ):
        if not holds:
            raise ArgumentError(name, rule, received, "Usual: p0 = Phi(radius/sigma), beta 0.001, look 100, ratio 1.1.")
    looks = look_schedule(n_max, look, ratio)
    shares = np.log1p(looks / looks[0]) / np.log1p(looks[-1] / looks[0])
    certify_at = _boundary(1.0 - p0, looks, alpha * np.where(looks < looks[-1], shares / 2, 1.0))
    give_up_at = looks - _boundary(p0, looks, beta * shares)
    give_up_at[-1] = -1
    for table in (looks, certify_at, give_up_at):
        table.setflags(write=False)
    return GroupSequentialDesign(p0, alpha, beta, looks, certify_at, give_up_at)


def look_schedule(n_max: int, look: int, ratio: float) -> IntArray:
    """Draws seen at each look (K,): n_1 = look, then max(n_k + look, look * round(ratio n_k / look)), up to n_max."""
    last = -(-n_max // look) * look
    looks = [look]
    while looks[-1] < last:
        if len(looks) == MOST_LOOKS:
            rule, received = f"must lead to {n_max:,} draws in at most {MOST_LOOKS:,} looks", f"{look} and {ratio:g}"
            raise ArgumentError("look, ratio", rule, received, "Look more rarely.")
        looks.append(min(last, max(looks[-1] + look, look * round(ratio * looks[-1] / look))))
    return np.array(looks, np.int64)


def _boundary(q: float, looks: IntArray, budgets: FloatArray) -> IntArray:
    """Least numbers of hits (K,) with P(crossed by look k) <= budgets[k], where a miss has probability q."""
    paths = BinomialPaths(q, dust=float(budgets[-1]) * _DUST)
    hits_needed = looks + 1
    spent = 0.0
    for k, draws in enumerate(looks.tolist()):
        paths.extend(draws)
        by_misses = spent + paths.lost + np.cumsum(paths.weights)
        affordable = int(np.searchsorted(by_misses, budgets[k] * _BUDGET, side="right"))
        if affordable:
            hits_needed[k] = draws - (paths.start + affordable - 1)
            spent += paths.cut_below(paths.start + affordable)
    return hits_needed


def log_evalue(
    successes: ArrayLike, draws: ArrayLike, p0: ArrayLike, prior: tuple[float, float] = (0.5, 0.5)
) -> FloatArray:
    """Logarithm of E+ after S successes in T draws; arrays broadcast.

    E+ = integral over q in (p0, 1] of (q/p0)^S ((1-q)/(1-p0))^(T-S) d pi(q), pi = Beta(a, b) truncated to (p0, 1]
    (the method of mixtures; Robbins, 1970). Under every p <= p0 it is a supermartingale started at 1, so by Ville's
    inequality P(E+ ever reaches 1/alpha) <= alpha.
    """
    hits, total, base = np.broadcast_arrays(
        np.asarray(successes, np.float64), np.asarray(draws, np.float64), np.asarray(p0, np.float64)
    )
    a, b = prior
    if not ((hits >= 0) & (hits <= total)).all():
        raise ArgumentError("successes", "0 <= successes <= draws must hold", successes, "Pass counts.")
    if not ((base > 0) & (base < 1)).all() or a <= 0 or b <= 0:
        raise ArgumentError(
            "p0", "must lie in (0,1), the prior be positive", f"{p0!r}, {prior!r}", "Try p0 = Phi(r/sigma)."
        )
    misses, q0 = total - hits, 1.0 - base
    evidence = betaln(misses + b, hits + a) + _log_betainc(misses + b, hits + a, q0)
    normaliser = betaln(b, a) + _log_betainc(np.full_like(q0, b), np.full_like(q0, a), q0)
    return np.asarray(evidence - normaliser - hits * np.log(base) - misses * np.log(q0))


def evalue_certifies(successes: ArrayLike, draws: ArrayLike, p0: ArrayLike, alpha: float) -> BoolArray:
    """Whether E+ >= 1/alpha, that is whether p > p0 may be claimed now, whenever now is; arrays broadcast."""
    check_alpha(alpha)
    rounding = 1e-7 + 1e-14 * np.asarray(draws, np.float64)  # of betaln and of the sums, which grow with the draws
    return np.asarray(log_evalue(successes, draws, p0) >= -np.log(alpha) + rounding)


def _log_betainc(x: FloatArray, y: FloatArray, q: FloatArray) -> FloatArray:
    """ln I_q(x, y), by its series where the value itself would underflow."""
    value = np.asarray(betainc(x, y, q))
    tiny = value < 1e-290
    result = np.asarray(np.log(np.where(tiny, 1.0, value)))
    if tiny.any():
        x, y, q = x[tiny], y[tiny], q[tiny]
        # I_q = q^x p^y / (x B(x,y)) * sum_j prod_i (x+y+i) q / (x+1+i): positive terms, so a cut series is too small,
        # which makes the e-value too small, the safe side.
        term, series = np.ones_like(q), np.ones_like(q)
        for i in range(500):
            term = term * (x + y + i) * q / (x + 1 + i)
            series += term
        result[tiny] = x * np.log(q) + y * np.log1p(-q) - np.log(x) - betaln(x, y) + np.log(series)
    return np.asarray(result)

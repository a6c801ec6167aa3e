"""An e-value against "p <= p0", valid at any stopping time and for any schedule of looks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.stats.binomial import check_alpha
from ringfence.stats.special import betainc, betaln
from ringfence.types import BoolArray, FloatArray


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
    return np.asarray(log_evalue(successes, draws, p0) >= -np.log(alpha) + 1e-7)  # 1e-7: rounding of betaln


def _log_betainc(x: FloatArray, y: FloatArray, q: FloatArray) -> FloatArray:
    """ln I_q(x, y), by its series where the value itself would underflow."""
    value = betainc(x, y, q)
    tiny = value < 1e-290
    result = np.log(np.where(tiny, 1.0, value))
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

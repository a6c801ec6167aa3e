"""Exact distributions of counts over the paths of a binomial walk that have not crossed a boundary yet."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ringfence.stats.special import betainc
from ringfence.types import FloatArray


class BinomialPaths:
    """Probabilities of ``start``, ``start + 1``, ... misses (``weights``) over the paths that were not cut away.

    q: probability of a miss; dust: tails lighter than this are dropped at each extension and summed up in ``lost``.
    """

    def __init__(self, q: float, dust: float) -> None:
        self.q = q
        self.dust = dust
        self.draws = 0
        self.start = 0
        self.weights: FloatArray = np.ones(1)
        self.lost = 0.0
        self._window = lru_cache(maxsize=4)(binomial_window)  # neighbouring looks often lie equally far apart

    @property
    def mass(self) -> float:
        """Probability of not having been cut away."""
        return float(self.weights.sum())

    def extend(self, draws: int) -> None:
        """Draw on until draws in all, by convolution."""
        first, increment, left_out = self._window(draws - self.draws, self.q, self.dust)
        self.lost += left_out * self.mass
        self.weights = np.convolve(self.weights, increment)
        self.start += first
        self.draws = draws
        self._trim()

    def cut_below(self, misses: int) -> float:
        """Remove the paths with fewer misses than this and return their probability."""
        gone = min(max(misses - self.start, 0), len(self.weights))
        removed = float(self.weights[:gone].sum())
        self.weights = self.weights[gone:]
        self.start += gone
        return removed

    def cut_above(self, misses: int) -> float:
        """Remove the paths with more misses than this and return their probability."""
        kept = min(max(misses + 1 - self.start, 0), len(self.weights))
        removed = float(self.weights[kept:].sum())
        self.weights = self.weights[:kept]
        return removed

    def _trim(self) -> None:
        """Drop tails lighter than dust."""
        light_below = int((np.cumsum(self.weights) <= self.dust).sum())
        light_above = int((np.cumsum(self.weights[::-1]) <= self.dust).sum())
        if light_below + light_above < len(self.weights):
            self.lost += self.cut_above(self.start + len(self.weights) - light_above - 1)
            self.lost += self.cut_below(self.start + light_below)


def binomial_window(n: int, q: float, dust: float) -> tuple[int, FloatArray, float]:
    """First count, probabilities of the counts from there on, and an upper bound on the mass left out (below dust).

    The probabilities come from the recurrence f(i+1)/f(i) = (n-i)/(i+1) * q/(1-q), started at the mode and normalised:
    logarithms of factorials would lose five digits at n = 1e5.
    """
    if q <= 0.0 or q >= 1.0:
        return (0 if q <= 0.0 else n), np.ones(1), 0.0
    mode = min(int((n + 1) * q), n)
    # Bernstein's inequality; two more than it asks for, because the mode is not the mean.
    log_term = float(np.log(2.0 / dust))
    reach = int(np.sqrt(2 * n * q * (1 - q) * log_term + (log_term / 3) ** 2) + log_term / 3) + 2
    low, high = max(mode - reach, 0), min(mode + reach, n)
    odds = q / (1.0 - q)
    up = np.arange(mode, high, dtype=np.float64)
    down = np.arange(mode, low, -1, dtype=np.float64)
    rising = np.cumprod((n - up) / (up + 1.0) * odds)
    falling = np.cumprod(down / (n - down + 1.0) / odds)
    weights = np.concatenate([falling[::-1], [1.0], rising])
    below = float(betainc(n - low + 1, low, 1.0 - q)) if low > 0 else 0.0
    above = float(betainc(high + 1, n - high, q)) if high < n else 0.0
    return low, weights / weights.sum(), (below + above) * (1 + 1e-6)

"""The Renyi-divergence certificate of Li, Chen, Wang and Carin (2019)."""

from __future__ import annotations

from typing import final

import numpy as np

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.search import crossing
from ringfence.stats.noise_law import GAUSSIAN, NoiseLaw
from ringfence.types import FloatArray


@final
class Renyi(Mechanism):
    """sup over w > 1 of sigma sqrt(-(2/w) ln(1 - p_a - p_b + 2 M)), M the power mean of order 1-w of p_a and p_b.

    At p_b = 0 it is sigma sqrt(-2 ln(1 - p_a)), the limit w -> 1.
    """

    name = "renyi"
    families = frozenset({GAUSSIAN})

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        gap = np.log(p_a / np.maximum(p_b, 1e-300))

        def parts(order: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
            """ln((1 + (p_b/p_a)^order) / 2), the power mean M, and p_a + p_b - 2 M, rounded down."""
            log_half = np.log1p(np.expm1(-gap * order) / 2)
            mean = p_b * np.exp(-log_half / order)
            return log_half, mean, np.maximum(p_a + p_b - 2 * mean - 1e-15, 0.0)

        def slope(log_order: FloatArray) -> FloatArray:
            """The derivative in w = 1 + order, up to a positive factor."""
            order = np.exp(log_order)
            log_half, mean, distance = parts(order)
            shrunk = np.exp(-gap * order)
            bend = (log_half / order + gap * shrunk / (1 + shrunk)) / order  # d ln M / d order, negative
            value: FloatArray = np.log1p(-distance) - 2 * mean * bend * (1 + order) / (1 - distance)
            return value

        best = crossing(slope, np.full_like(p_a, -8.0), np.full_like(p_a, 16.0), rounds=22)
        inside = np.log1p(-parts(np.exp(best))[2]) / (1 + np.exp(best))
        apart = ((p_a - p_b) / (np.sqrt(p_a) + np.sqrt(p_b))) ** 2
        limit = np.log1p(-np.minimum(apart, p_a))  # never above p_a; rounded to 1 it would prove everything
        radius: FloatArray = np.sqrt(-2 * np.fmin(limit, inside))
        return radius


renyi = Renyi()

"""Certificates with a free parameter: by Renyi's divergence (Li, Chen, Wang and Carin, 2019), and from differential
privacy of the Gaussian mechanism, PixelDP and its analytic form."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np

from ringfence.mechanisms.base import Mechanism
from ringfence.stats.noise_law import GAUSSIAN, NoiseLaw
from ringfence.stats.special import log_ndtr, ndtr, ndtri
from ringfence.types import FloatArray


def crossing(slope: Callable[[FloatArray], FloatArray], low: FloatArray, high: FloatArray, rounds: int) -> FloatArray:
    """Where slope changes from positive to negative between low and high (points,): the maximum of a single peak.

    slope: the derivative up to a positive factor, elementwise; where it never changes sign an end is approached.
    Two secant steps, weighted as in the Illinois method, follow each bisection.
    """
    low, high = low.copy(), high.copy()
    at_low, at_high = slope(low), slope(high)
    for i in range(rounds):
        middle = (low + high) / 2
        if i % 3:
            secant = (low * at_high - high * at_low) / (at_high - at_low)
            inside = (secant > low) & (secant < high)
            middle = np.where(inside, secant, middle)
        value = slope(middle)
        rising = value > 0
        # Halving the value kept at the far end keeps the secant from creeping up on one side.
        at_high = np.where(rising, at_high / 2, value)
        at_low = np.where(rising, value, at_low / 2)
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.where(np.abs(at_low) < np.abs(at_high), low, high)


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


@final
class PixelDP(Mechanism):
    """max over 0 < eps < min(1, ln(p_a/p_b)/2) of sigma eps / sqrt(2 ln(1.25 (1+e^eps) / (p_a - e^(2 eps) p_b))).

    Lecuyer et al. (2019), proposition 1, with the classical Gaussian mechanism; sensitivity 1, the noise being on
    the input.
    """

    name = "pixeldp"
    families = frozenset({GAUSSIAN})

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        most = np.minimum(1.0, np.log(p_a / p_b) / 2) * (1 - 1e-12)

        def cost_and_growth(eps: FloatArray) -> tuple[FloatArray, FloatArray]:
            """The logarithm under the root, and its derivative in eps."""
            grown = np.exp(eps)
            loss = grown**2 * p_b
            left = p_a - loss
            return np.log(1.25 * (1 + grown) / left), grown / (1 + grown) + 2 * loss / left

        def slope(eps: FloatArray) -> FloatArray:
            cost, growth = cost_and_growth(eps)
            return 2 * cost - eps * growth

        inner = crossing(slope, np.zeros_like(p_a), most, rounds=20)
        inside, edge = (eps / np.sqrt(2 * cost_and_growth(eps)[0]) for eps in (inner, most))
        return np.fmax(inside, edge)


@final
class AnalyticDP(Mechanism):
    """max over eps of the L with Phi(L/2s - eps s/L) - e^eps Phi(-L/2s - eps s/L) = (p_a - e^(2eps) p_b)/(1 + e^eps).

    Cullen et al. (2024), eq. 18, from the exact privacy curve of Balle and Wang (2018). With E = e^eps,
    a = L/2 - eps/L and b = -L/2 - eps/L the left side has the derivatives phi(a) in L and -E Phi(b) in eps, so that
    the best eps satisfies Phi(a) = (p_a (1+2E) + E^2 p_b)/(1+E)^2 and Phi(b) = (p_a + p_b (2E+E^2))/(1+E)^2 together
    with b^2 - a^2 = 2 eps: one equation in eps. L is then solved for at that eps, whatever its accuracy, and ends on
    the safe side.
    """

    name = "analytic_dp"
    families = frozenset({GAUSSIAN})

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        most = np.log(p_a / p_b) / 2

        def ends(eps: FloatArray) -> tuple[FloatArray, FloatArray]:
            grown = np.exp(eps)
            square = (1 + grown) ** 2
            return (
                ndtri((p_a * (1 + 2 * grown) + grown**2 * p_b) / square),
                ndtri((p_a + p_b * (2 * grown + grown**2)) / square),
            )

        def slope(eps: FloatArray) -> FloatArray:
            a, b = ends(eps)
            return (b - a) * (b + a) / 2 - eps

        # Of two classes (p_a + p_b = 1) the slope at 0 is 0, and the sign of its rounding error decides: from p_a .989
        # on, where the peak leaves 0, some radii are those of eps 0, sound and up to .6 % smaller. A search from
        # 1e-6 most finds the peak, but then runs of before, which keep these radii, verify no more; and no answer is
        # better for it, for neyman_pearson proves more everywhere.
        eps = np.maximum(crossing(slope, np.zeros_like(p_a), most, rounds=14), 0.0)
        a, b = ends(eps)
        radius = self._solve(a - b, eps, (p_a - np.exp(2 * eps) * p_b) / (1 + np.exp(eps)))
        return np.where(p_b == 0, np.inf, radius)

    @staticmethod
    def _solve(radius: FloatArray, eps: FloatArray, delta: FloatArray) -> FloatArray:
        """L with privacy loss at most delta, by Newton steps from a guess; 0 where the last check fails."""
        for _ in range(6):
            loss, density = _privacy_loss(radius, eps)
            radius = np.clip(radius - (loss - delta) / density, radius / 2, radius * 2)
        radius = radius * (1 - 1e-10)
        return np.where(_privacy_loss(radius, eps)[0] <= delta, radius, 0.0)


def _privacy_loss(radius: FloatArray, eps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Delta of unit Gaussian noise at distance radius, plus more than its rounding error; and its derivative."""
    shift = eps / radius
    end = radius / 2 - shift
    above = ndtr(end)
    loss = above - np.exp(eps + log_ndtr(-radius / 2 - shift))
    return loss + 4e-15 * (1 + eps) * above, np.exp(-(end**2) / 2) / np.sqrt(2 * np.pi)


pixeldp = PixelDP()
analytic_dp = AnalyticDP()

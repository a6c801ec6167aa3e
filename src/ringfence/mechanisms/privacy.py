"""Certificates from differential privacy of the Gaussian mechanism: PixelDP and its analytic form."""

from __future__ import annotations

from typing import final

import numpy as np

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.search import crossing
from ringfence.stats.noise_law import GAUSSIAN, NoiseLaw
from ringfence.stats.special import log_ndtr, ndtr, ndtri
from ringfence.types import FloatArray


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

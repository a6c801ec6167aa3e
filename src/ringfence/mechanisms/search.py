"""One vectorised search for the free parameter of a certificate; every value of it is sound, the best is wanted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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

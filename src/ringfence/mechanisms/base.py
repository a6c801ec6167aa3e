"""Mechanism: bounds on class probabilities under Gaussian noise -> certified l2 radius."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

_ROUND_DOWN = 1 - 1e-9
"""Radii are rounded down by this factor, far more than any formula here errs."""
_ROUNDING = 4e-15
"""Taken off in units of sigma: two probabilities that differ in their last digit certify nothing."""
_CHUNK = 8192
"""Points computed at once: the temporaries of the search loops stay in the cache."""


class Mechanism(ABC):
    """A proof that turns bounds on class probabilities into a radius; subclasses are final and write ``_radius``."""

    name: str

    @final
    def __call__(self, p_a: ArrayLike, p_b: ArrayLike, sigma: ArrayLike) -> FloatArray:
        """Radius within which the prediction cannot change, 0 where nothing is certified; arrays broadcast.

        p_a: lower bound on the chosen class; p_b: upper bound on every other class, at most 1 - p_a;
        sigma: standard deviation of the noise. The radius is rounded down; it is infinite where p_a = 1 or p_b = 0
        says that no other class can ever appear (a bound from finitely many draws never says so).
        """
        top, other, scale = np.broadcast_arrays(
            np.asarray(p_a, np.float64), np.asarray(p_b, np.float64), np.asarray(sigma, np.float64)
        )
        _check(top, other, scale)
        top_flat, other_flat = top.ravel(), np.minimum(other, 1.0 - top).ravel()
        unit = np.zeros(top_flat.shape)
        with np.errstate(all="ignore"):
            for first in range(0, unit.size, _CHUNK):
                part = slice(first, first + _CHUNK)
                hopeful = top_flat[part] > other_flat[part]
                unit[part][hopeful] = self._radius(top_flat[part][hopeful], other_flat[part][hopeful])
        # fmax also turns a formula's undefined value into "nothing certified".
        radius: FloatArray = np.fmax(unit - _ROUNDING, 0.0).reshape(top.shape) * scale * _ROUND_DOWN
        return radius

    @abstractmethod
    def _radius(self, p_a: FloatArray, p_b: FloatArray) -> FloatArray:
        """Radius at sigma = 1 for 1-d arrays with p_a > p_b and p_b <= 1 - p_a (all mechanisms are linear in sigma)."""

    @final
    def probability_for(self, radius: ArrayLike, sigma: ArrayLike) -> FloatArray:
        """Smallest p_a at which this mechanism certifies the radius with p_b = 1 - p_a; arrays broadcast.

        Rounded up: ``self(p, 1 - p, sigma) >= radius`` holds for the result p. It is 1/2 for radius 0 and infinite,
        a probability nobody reaches, where no p_a is enough.
        """
        goal, scale = np.broadcast_arrays(np.asarray(radius, np.float64), np.asarray(sigma, np.float64))
        if not (goal >= 0).all():
            raise ArgumentError("radius", "must be at least 0", radius, "Pass a distance in input units.")
        enough = np.where(self(1.0, 0.0, scale) >= goal, 1.0, np.inf)
        # Bisection in the normal quantile, which resolves probabilities close to 1.
        low, high = np.zeros(goal.shape), np.full(goal.shape, 9.0)
        for _ in range(60):
            middle = (low + high) / 2
            p_a = 1.0 - ndtr(-middle)
            reached = self(p_a, 1.0 - p_a, scale) >= goal
            enough = np.where(reached, np.minimum(p_a, enough), enough)
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return np.where(goal == 0, 0.5, enough)


def _check(p_a: FloatArray, p_b: FloatArray, sigma: FloatArray) -> None:
    """Refuse what is no pair of bounds, and a noise level that is none; not-a-number fails every rule."""
    rules = (
        ("p_a", (p_a >= 0) & (p_a <= 1), "must lie in [0, 1]", "Pass a lower bound on a probability."),
        ("p_b", (p_b >= 0) & (p_b <= 1), "must lie in [0, 1]", "Pass an upper bound on a probability."),
        ("p_b", p_b <= 1.0 - p_a + 1e-9, "must be at most 1 - p_a", "Pass min(p_b, 1 - p_a): no other class has more."),
        ("sigma", (sigma > 0) & (sigma < np.inf), "must be positive and finite", "Pass the noise level, such as 0.5."),
    )
    for name, holds, rule, remedy in rules:
        if not holds.all():
            first = np.flatnonzero(~holds.ravel())[0]
            received = f"p_a={p_a.flat[first]:.6g}, p_b={p_b.flat[first]:.6g}, sigma={sigma.flat[first]:.6g}"
            raise ArgumentError(name, rule, received, remedy)

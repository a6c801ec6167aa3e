"""The rules every procedure's settings obey, each with its remedy."""

from __future__ import annotations

import math

from ringfence.errors import ArgumentError


def check_share(name: str, value: float) -> None:
    """A probability strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ArgumentError(name, "must lie strictly between 0 and 1", value, "The usual value is 0.001.")


def check_count(name: str, value: int) -> None:
    """A number of draws."""
    if value < 1:
        raise ArgumentError(name, "must be at least 1", value, "Usual values are 100 (n0) and 100000 (n).")


def check_radius(name: str, value: float) -> None:
    """A target radius."""
    if not (math.isfinite(value) and value >= 0.0):
        raise ArgumentError(name, "must be a finite number, at least 0", value, "Give it in [0,1] pixel units.")


def check_reachable(radius: float, largest: float, sigma: float, remedy: str, name: str = "radius") -> None:
    """A target that no outcome of the draws could prove is refused before anything runs."""
    if radius > largest:
        rule = f"no outcome of these draws can prove more than {largest:.4g} at sigma {sigma:g}"
        raise ArgumentError(name, rule, radius, remedy)

"""Finds POWERS of classifiers/exchanging.py: the polynomial p of degree 7 whose 2^p(t) is nearest to Phi(-t), t to 8.5.

python tools/gelu_powers.py

The largest error of p, as that of log2 Phi(-t), is the relative one of 2^p in units of ln 2. It is smallest where it is
reached at degree + 2 points with alternating signs (Chebyshev): Remez's exchange moves such points to where the error
of the polynomial through them is largest, until it is no larger elsewhere.
"""

from __future__ import annotations

import numpy as np
from numpy.polynomial.polynomial import polyval
from scipy.special import log_ndtr

from ringfence.types import FloatArray

DEGREE, END = 7, 8.5
GRID = 100_001
ROUNDS = 50
EVEN = 1e-8
"""Share by which the largest error may exceed the one at the points."""


def wanted(t: FloatArray) -> FloatArray:
    """log2 Phi(-t)."""
    found: FloatArray = log_ndtr(-t) / np.log(2)
    return found


def nearest(degree: int = DEGREE, end: float = END) -> tuple[FloatArray, float]:
    """Coefficients by rising powers, and the largest error on [0, end]."""
    grid = end * (1 - np.cos(np.linspace(0, np.pi, GRID))) / 2  # dense at the ends, where the error turns fastest
    points = end * (1 - np.cos(np.linspace(0, np.pi, degree + 2))) / 2
    for _ in range(ROUNDS):
        signs = (-1.0) ** np.arange(degree + 2)
        *powers, level = np.linalg.solve(np.c_[np.vander(points, degree + 1, increasing=True), signs], wanted(points))
        error = polyval(grid, powers) - wanted(grid)
        if np.abs(error).max() <= (1 + EVEN) * abs(level):
            return np.array(powers), abs(float(level))
        stretches = np.split(np.arange(GRID), np.nonzero(np.diff(np.sign(error)))[0] + 1)  # between two zeros each
        points = grid[[stretch[np.abs(error[stretch]).argmax()] for stretch in stretches]]
    raise ArithmeticError(f"no even error after {ROUNDS} rounds")


def main() -> None:
    powers, error = nearest()
    for one in powers:
        print(f"    {float(np.float32(one))!r},")
    print(f"2^p is Phi(-t) up to {np.log(2) * error:.2g} of it")


if __name__ == "__main__":
    main()

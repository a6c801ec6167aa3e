"""Every published formula against an independent slow evaluation: dense grids and 30 digits, no derivatives."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import ndtri

from ringfence.mechanisms import MECHANISMS, analytic_dp, neyman_pearson, one_sided, pixeldp, renyi

POINTS = [
    (0.99, 0.01),
    (0.999, 1e-4),
    (1 - 1e-6, 1e-9),
    (0.9, 0.05),
    (0.7, 0.3),
    (0.6, 0.1),
    (0.5, 0.49),
    (0.4, 0.3),
    (0.35, 0.01),
    (0.2, 1e-6),
    (0.05, 0.001),
    (0.011, 0.01),
]


def peak(function: Callable[[mpf], mpf], low: float, high: float) -> float:
    """Maximum between low and high: ternary search in 30 digits around the best point of a coarse grid."""
    with mpmath.workdps(30):
        grid = [mpf(x) for x in np.linspace(low, high, 30)]
        best = max(range(1, len(grid) - 1), key=lambda i: function(grid[i]))
        a, b = grid[best - 1], grid[best + 1]
        for _ in range(30):
            third = (b - a) / 3
            if function(a + third) < function(b - third):
                a += third
            else:
                b -= third
        return float(function((a + b) / 2))


def renyi_slowly(p_a: float, p_b: float) -> float:
    a, b = mpf(p_a), mpf(p_b)

    def squared(log_order: mpf) -> mpf:
        w = 1 + mp.exp(log_order)
        mean = ((a ** (1 - w) + b ** (1 - w)) / 2) ** (1 / (1 - w))
        return -(2 / w) * mp.log(1 - a - b + 2 * mean)

    return float(np.sqrt(peak(squared, -18, 10)))


def pixeldp_slowly(p_a: float, p_b: float) -> float:
    a, b = mpf(p_a), mpf(p_b)
    most = min(1.0, float(mp.log(a / b) / 2)) * (1 - 1e-12)
    return peak(lambda e: e / mp.sqrt(2 * mp.log(1.25 * (1 + mp.exp(e)) / (a - mp.exp(2 * e) * b))), most * 1e-6, most)


def analytic_dp_slowly(p_a: float, p_b: float) -> float:
    a, b = mpf(p_a), mpf(p_b)

    def distance(eps: mpf) -> mpf:
        delta = (a - mp.exp(2 * eps) * b) / (1 + mp.exp(eps))
        low, high = mpf("1e-12"), mpf(20)
        for _ in range(40):
            middle = (low + high) / 2
            loss = mp.ncdf(middle / 2 - eps / middle) - mp.exp(eps) * mp.ncdf(-middle / 2 - eps / middle)
            low, high = (middle, high) if loss <= delta else (low, middle)
        return low

    return peak(distance, 0.0, float(mp.log(a / b) / 2))


@pytest.mark.parametrize(("p_a", "p_b"), POINTS)
def test_closed_forms(p_a: float, p_b: float) -> None:
    with mpmath.workdps(30):
        top, other = (mp.sqrt(2) * mp.erfinv(2 * mpf(p) - 1) for p in (p_a, p_b))
    assert float(neyman_pearson(p_a, p_b, 1.0)) == pytest.approx(float((top - other) / 2), rel=1e-8)
    assert float(one_sided(p_a, p_b, 1.0)) == pytest.approx(max(float(top), 0.0), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize(("p_a", "p_b"), POINTS)
def test_renyi(p_a: float, p_b: float) -> None:
    assert float(renyi(p_a, p_b, 1.0)) == pytest.approx(renyi_slowly(p_a, p_b), rel=1e-6)


@pytest.mark.parametrize(("p_a", "p_b"), POINTS)
def test_pixeldp(p_a: float, p_b: float) -> None:
    assert float(pixeldp(p_a, p_b, 1.0)) == pytest.approx(pixeldp_slowly(p_a, p_b), rel=1e-6)


@pytest.mark.parametrize(("p_a", "p_b"), POINTS)
def test_analytic_dp(p_a: float, p_b: float) -> None:
    assert float(analytic_dp(p_a, p_b, 1.0)) == pytest.approx(analytic_dp_slowly(p_a, p_b), rel=1e-6)


def test_limits() -> None:
    p_a = np.array([0.3, 0.6, 0.99])
    np.testing.assert_allclose(renyi(p_a, 0.0, 1.0), np.sqrt(-2 * np.log1p(-p_a)), rtol=1e-8)
    assert np.isinf(neyman_pearson(p_a, 0.0, 1.0)).all()
    assert np.isinf(analytic_dp(p_a, 0.0, 1.0)).all()
    np.testing.assert_allclose(pixeldp(1.0, 0.0, 1.0), 1 / np.sqrt(2 * np.log(1.25 * (1 + np.e))), rtol=1e-8)
    for name in ("one_sided", "neyman_pearson", "renyi", "analytic_dp"):
        assert MECHANISMS[name](1.0, 0.0, 1.0) == np.inf
    # On p_a + p_b = 1 the best eps of the analytic form is 0 up to .989, where it has a closed form.
    p_a = np.linspace(0.51, 0.989, 20)
    np.testing.assert_allclose(analytic_dp(p_a, 1 - p_a, 1.0), 2 * ndtri(0.5 + (2 * p_a - 1) / 4), rtol=1e-8)

"""How much the tight certificate gains over each other one, point by point on the closed simplex."""

from __future__ import annotations

import numpy as np
import pytest

from ringfence.mechanisms import MECHANISMS, neyman_pearson
from ringfence.types import FloatArray

STEPS = np.arange(201) / 200
TAILS = np.array([1e-6, 1e-5, 1e-4, 1e-3])


def simplex(with_tails: bool) -> tuple[FloatArray, FloatArray]:
    """All pairs (p_a, p_b) with p_a > p_b > 0 and p_a + p_b <= 1 in steps of .005; tails add 1 - t and t."""
    tops = np.concatenate([STEPS, 1 - TAILS]) if with_tails else STEPS
    others = np.concatenate([STEPS, TAILS]) if with_tails else STEPS
    p_a, p_b = (grid.ravel() for grid in np.meshgrid(tops, others))
    inside = (p_a > p_b + 1e-12) & (p_b > 0) & (p_a + p_b <= 1 + 1e-12)
    return p_a[inside], np.minimum(p_b, 1 - p_a)[inside]


@pytest.mark.parametrize(
    ("name", "with_tails", "median", "smallest", "largest"),
    [
        ("one_sided", False, 1.67, None, None),
        ("renyi", False, 1.148, 1.110, None),
        ("pixeldp", False, 2.92, None, None),
        ("analytic_dp", False, 1.029, None, 1.92),
        ("one_sided", True, 1.75, None, None),
        ("renyi", True, 1.15, 1.098, None),
        ("pixeldp", True, 2.98, None, None),
        ("analytic_dp", True, 1.03, None, 2.7),
    ],
)
def test_ratios(name: str, with_tails: bool, median: float, smallest: float | None, largest: float | None) -> None:
    p_a, p_b = simplex(with_tails)
    radius = MECHANISMS[name](p_a, p_b, 1.0)
    tight = neyman_pearson(p_a, p_b, 1.0)
    assert (radius <= tight).all()
    ratios = tight[radius > 0] / radius[radius > 0]
    assert float(np.median(ratios)) == pytest.approx(median, abs=0.006 if median > 1.5 or with_tails else 0.001)
    if smallest is not None:
        assert float(ratios.min()) == pytest.approx(smallest, abs=6e-4)
    if largest is not None:
        assert float(ratios.max()) == pytest.approx(largest, abs=0.01)

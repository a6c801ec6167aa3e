"""The powers by which a GELU is computed are those that a program finds."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyval

from ringfence.classifiers.exchanging import POWERS


@pytest.fixture
def gelu_powers(tool: Callable[[str], ModuleType]) -> ModuleType:
    return tool("gelu_powers")


def test_they_are_those_of_the_least_largest_error(gelu_powers: ModuleType) -> None:
    powers, error = gelu_powers.nearest()
    np.testing.assert_allclose(POWERS, powers, rtol=3e-7)  # some units of float32
    t = np.linspace(0, gelu_powers.END, 200_001)
    assert np.abs(polyval(t, POWERS) - gelu_powers.wanted(t)).max() <= 1.01 * error
    assert np.log(2) * error < 5e-5


def test_what_is_found_is_the_least_largest_error(gelu_powers: ModuleType) -> None:
    """Of 2 numbers p(t) = a + b t through a bent curve: the chord's slope, half of the largest distance above it."""
    (low, slope), error = gelu_powers.nearest(degree=1, end=1.0)
    first, last = gelu_powers.wanted(np.array([0.0, 1.0]))
    t = np.linspace(0, 1, 100_001)
    above = gelu_powers.wanted(t) - (first + (last - first) * t)
    assert slope == pytest.approx(last - first, rel=1e-9)
    assert error == pytest.approx(above.max() / 2, rel=1e-6)
    assert low == pytest.approx(first + above.max() / 2, rel=1e-6)

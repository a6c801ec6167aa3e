"""Bounds on means of [0, 1] variables against their formulas and against slow searches."""

from __future__ import annotations

import statistics

import mpmath
import numpy as np
import pytest

from ringfence.errors import ArgumentError
from ringfence.stats import (
    betting_lower,
    betting_upper,
    clopper_pearson_lower,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    histogram_lower,
    histogram_upper,
    hoeffding_lower,
    hoeffding_upper,
    moments,
)
from ringfence.stats.means import BETS


def test_hoeffding() -> None:
    margin = np.sqrt(np.log(1000) / 200)
    assert float(hoeffding_lower(0.7, 100, 1e-3)) == pytest.approx(0.7 - margin, abs=1e-11)
    assert float(hoeffding_upper(0.7, 100, 1e-3)) == pytest.approx(0.7 + margin, abs=1e-11)
    assert float(hoeffding_lower(0.01, 10, 1e-3)) == 0.0
    assert float(hoeffding_upper(0.99, 10, 1e-3)) == 1.0


def test_empirical_bernstein() -> None:
    margin = np.sqrt(2 * 0.04 * np.log(2000) / 1000) + 7 * np.log(2000) / (3 * 999)
    assert float(empirical_bernstein_lower(0.7, 0.04, 1000, 1e-3)) == pytest.approx(0.7 - margin, abs=1e-11)
    assert float(empirical_bernstein_upper(0.7, 0.04, 1000, 1e-3)) == pytest.approx(0.7 + margin, abs=1e-11)


@pytest.mark.parametrize("counts", [[1, 0, 1], [2, 1, 0], [0, 3, 4], [10, 20, 30]])
def test_the_variance_of_a_histogram_is_the_unbiased_one_that_bernstein_asks_for(counts: list[int]) -> None:
    """Divided by n - 1: with n the bound would be too tight where there are few draws."""
    values = np.array([0.0, 0.3, 1.0])
    draws = np.repeat(values, counts)
    mean, variance, n = moments(values, np.array([counts]))
    assert n.tolist() == [len(draws)]
    assert mean[0] == pytest.approx(draws.mean(), rel=1e-14)
    assert variance[0] == pytest.approx(statistics.variance(draws.tolist()), rel=1e-12)
    expected = empirical_bernstein_lower(draws.mean(), statistics.variance(draws.tolist()), len(draws), 0.4)
    np.testing.assert_allclose(histogram_lower(values, np.array([counts]), 0.4, "bernstein"), expected, rtol=1e-12)
    mirrored = empirical_bernstein_upper(draws.mean(), statistics.variance(draws.tolist()), len(draws), 0.4)
    np.testing.assert_allclose(histogram_upper(values, np.array([counts]), 0.4, "bernstein"), mirrored, rtol=1e-12)


@pytest.mark.parametrize("counts", [[0, 3, 10, 40, 60], [5, 0, 0, 0, 95], [200, 3, 0, 0, 1], [0, 0, 0, 0, 50]])
def test_betting_is_the_root_of_the_capital(counts: list[int]) -> None:
    values = np.array([0.0, 0.1, 0.5, 0.9, 1.0])

    def capital(m: float) -> mpmath.mpf:
        products = [
            mpmath.fprod(mpmath.mpf(1 - c + c * x / m) ** k for x, k in zip(values, counts, strict=True)) for c in BETS
        ]
        return mpmath.fsum(products) / len(BETS)

    bound = float(betting_lower(values, counts, 1e-3))
    assert capital(bound) >= 1000
    assert capital(bound * (1 + 1e-7)) < 1000


def test_betting_upper_mirrors_lower() -> None:
    values = np.linspace(0, 1, 9)
    counts = np.random.default_rng(0).integers(0, 50, (4, 9))
    np.testing.assert_allclose(
        betting_upper(values, counts, 0.01), 1 - betting_lower(values, counts[:, ::-1], 0.01), rtol=0, atol=1e-12
    )


def test_betting_does_not_depend_on_how_rows_are_grouped() -> None:
    values = np.linspace(0, 1, 64)
    counts = np.random.default_rng(1).poisson(3.0, (500, 64)) * (np.arange(64) > 40)
    together = betting_lower(values, counts.reshape(5, 100, 64), 1e-3)
    assert together.shape == (5, 100)
    alone = [float(betting_lower(values, row, 1e-3)) for row in counts[:20]]
    np.testing.assert_allclose(together.ravel()[:20], alone, rtol=1e-8)


def test_betting_proves_nothing_from_nothing() -> None:
    np.testing.assert_array_equal(betting_lower([0.0, 1.0], [[0, 0], [10, 0]], 0.05), [0.0, 0.0])
    np.testing.assert_array_equal(betting_upper([0.0, 1.0], [[0, 0], [0, 10]], 0.05), [1.0, 1.0])
    assert betting_lower([0.0, 1.0], np.zeros((0, 2), int), 0.05).shape == (0,)


def test_betting_beats_hoeffding_where_the_variance_is_small_and_nears_clopper_pearson_on_bits() -> None:
    counts = np.array([2, 998])
    betting = float(betting_lower([0.0, 1.0], counts, 1e-3))
    assert betting > float(hoeffding_lower(0.998, 1000, 1e-3)) + 0.03
    assert 0.98 < betting < float(clopper_pearson_lower(998, 1000, 1e-3))


def test_nonsense_is_refused() -> None:
    with pytest.raises(ArgumentError, match="mean"):
        hoeffding_lower(1.2, 10, 0.1)
    with pytest.raises(ArgumentError, match="at least 2"):
        empirical_bernstein_lower(0.5, 0.1, 1, 0.1)
    with pytest.raises(ArgumentError, match="variance"):
        empirical_bernstein_lower(0.5, -0.1, 10, 0.1)
    with pytest.raises(ArgumentError, match="values"):
        betting_lower([0.0, 1.5], [1, 2], 0.1)
    with pytest.raises(ArgumentError, match="counts"):
        betting_lower([0.0, 1.0], [1, 2, 3], 0.1)

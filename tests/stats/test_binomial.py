"""Clopper-Pearson against high-precision sums of the binomial distribution."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.stats import beta

from ringfence.errors import AlphaError, ArgumentError
from ringfence.stats import (
    AlphaLedger,
    ClopperPearson,
    SpendingClopperPearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    group_sequential_design,
)

CASES = [
    (k, n, alpha)
    for n in (1, 2, 10, 1000, 100_000)
    for alpha in (0.05, 1e-3, 1e-12)
    for k in sorted({0, 1, n // 2, n - n // 50, n - 1, n})
] + [(k, 10**9, alpha) for k in (0, 1, 999_999_990, 10**9) for alpha in (1e-3, 1e-12)]


def tail_at_most(k: int, n: int, p: float) -> mpmath.mpf:
    """P(Bin(n, p) <= k) below the mean, summed from the largest term down in 50 digits."""
    with mpmath.workdps(50):
        p = mpmath.mpf(p)
        q = 1 - p
        if q == 0:
            return mpmath.mpf(1 if k >= n else 0)
        log_term = (
            mpmath.loggamma(n + 1)
            - mpmath.loggamma(k + 1)
            - mpmath.loggamma(n - k + 1)
            + (k * mpmath.log(p) if k else 0)
            + (n - k) * mpmath.log(q)
        )
        term = total = mpmath.mpf(1)
        for i in range(k, 0, -1):
            term *= i * q / ((n - i + 1) * p)
            total += term
            if term < total * mpmath.mpf(10) ** -30:
                break
        return mpmath.exp(log_term) * total


@pytest.mark.parametrize(("k", "n", "alpha"), CASES)
def test_the_upper_bound_is_on_the_safe_side_and_tight(k: int, n: int, alpha: float) -> None:
    bound = float(clopper_pearson_upper(k, n, alpha))
    if k == n:
        assert bound == 1.0
        return
    assert tail_at_most(k, n, bound) <= alpha
    # Slack: the margin of 1e-6 in alpha, and a few units in the last place of a number close to 1.
    closer = bound - (bound * 1e-6 + 4e-16)
    assert closer <= 0 or tail_at_most(k, n, closer) > alpha


@pytest.mark.parametrize(("k", "n", "alpha"), CASES)
def test_the_lower_bound_is_on_the_safe_side_and_tight(k: int, n: int, alpha: float) -> None:
    bound = float(clopper_pearson_lower(k, n, alpha))
    if k == 0:
        assert bound == 0.0
        return
    with mpmath.workdps(50):
        failure = 1 - mpmath.mpf(bound)
        assert tail_at_most(n - k, n, failure) <= alpha
        closer = failure * (1 - mpmath.mpf("1e-6")) - mpmath.mpf("4e-16")
        assert closer <= 0 or tail_at_most(n - k, n, closer) > alpha


def test_all_successes_have_the_closed_form() -> None:
    n = np.array([1, 10, 1000, 100_000])
    np.testing.assert_allclose(1 - clopper_pearson_lower(n, n, 1e-3), -np.expm1(np.log(1e-3) / n), rtol=1e-6)


def test_no_draws_prove_nothing() -> None:
    assert clopper_pearson_lower(0, 0, 0.1) == 0.0
    assert clopper_pearson_upper(0, 0, 0.1) == 1.0


def test_it_agrees_with_the_beta_distribution() -> None:
    k = np.array([1, 500, 60_000, 99_000, 99_900, 99_999])
    np.testing.assert_allclose(clopper_pearson_lower(k, 100_000, 1e-3), beta.ppf(1e-3, k, 100_001 - k), rtol=2e-6)
    np.testing.assert_allclose(clopper_pearson_upper(k, 100_000, 1e-3), beta.isf(1e-3, k + 1, 100_000 - k), rtol=2e-6)


@pytest.mark.parametrize("answer", [0.0, float("nan"), 0.01, 0.3])
def test_an_inversion_that_fails_is_mended_on_the_safe_side(monkeypatch: pytest.MonkeyPatch, answer: float) -> None:
    """Whatever SciPy's inversion says, the bound is stepped up until its tail is at most alpha."""
    monkeypatch.setattr("ringfence.stats.binomial.betainccinv", lambda a, b, y: np.full(a.shape, answer))
    k = np.array([1, 30, 400])
    assert (clopper_pearson_upper(k, 1000, 1e-3) >= beta.isf(1e-3, k + 1, 1000 - k)).all()


def test_many_rows_have_the_bounds_of_each_alone() -> None:
    """Rows that share their counts are inverted once; each must get back its own."""
    k = np.random.default_rng(0).integers(1, 40, 500)
    alone = [float(clopper_pearson_lower(int(one), 40, 1e-3)) for one in k]
    assert clopper_pearson_lower(k, 40, 1e-3).tolist() == alone


def test_arrays_broadcast_and_keep_their_shape() -> None:
    result = clopper_pearson_lower(np.arange(6).reshape(2, 3), np.array([[10], [20]]), [0.1, 0.01, 0.001])
    assert result.shape == (2, 3)
    assert result.dtype == np.float64
    assert result[1, 2] == clopper_pearson_lower(5, 20, 0.001)
    assert clopper_pearson_upper([], 10, 0.1).shape == (0,)


@pytest.mark.parametrize(
    ("k", "n", "alpha"),
    [
        (-1, 5, 0.1),
        (6, 5, 0.1),
        (1, 5, 0.0),
        (1, 5, 1.0),
        (1, 5, float("nan")),
        (0.9, 5, 0.1),  # cut off to 0 it would bound from above what was not counted
        (1, 5.5, 0.1),
        (np.array([1.0, np.nan]), 5, 0.1),
        (1, 5, 5e-324),
    ],
)
def test_nonsense_is_refused(k: float, n: float, alpha: float) -> None:
    for bound in (clopper_pearson_lower, clopper_pearson_upper):
        with pytest.raises(ArgumentError, match="must"):
            bound(k, n, alpha)


@pytest.mark.parametrize(("k", "n"), [(150, 10_000), (554, 1000), (0, 10**9), (500_000, 10**6)])
def test_the_smallest_level_is_kept_too(k: int, n: int) -> None:
    """Smaller ones were exceeded by up to 3 %: the incomplete beta function ends where floating point does."""
    bound = float(clopper_pearson_upper(k, n, 1e-300))
    assert 1 - 1e-5 < tail_at_most(k, n, bound) / mpmath.mpf(1e-300) <= 1
    assert bound == clopper_pearson_upper(float(k), float(n), 1e-300)


@pytest.mark.parametrize("alpha", [1e-3, 1e-4, 1e-12])
@pytest.mark.parametrize("n", [10**6, 10**8, 10**9, 10**12])
def test_bounds_are_tight_where_the_inverse_is_not(n: int, alpha: float) -> None:
    """SciPy's misses the root at a = 1000 alone: bounds from 999 failures were worse than those from 1000."""
    bounds = clopper_pearson_upper([998, 999, 1000], n, alpha)
    assert (np.diff(bounds) > 0).all()
    assert 1 - 2e-5 < tail_at_most(999, n, float(bounds[1])) / mpmath.mpf(alpha) <= 1


def test_bounds_name_what_they_are_valid_for() -> None:
    fixed, anytime = ClopperPearson(0.01), SpendingClopperPearson(0.01)
    assert fixed.lower_at_fixed_n(90, 100) == clopper_pearson_lower(90, 100, 0.01)
    assert fixed.upper_at_fixed_n(90, 100) == clopper_pearson_upper(90, 100, 0.01)
    assert anytime.lower_at_look(90, 100, 3) == clopper_pearson_lower(90, 100, 0.01 / 12)
    assert anytime.upper_at_look(90, 100, 3) == pytest.approx(clopper_pearson_upper(90, 100, 0.01 / 12), rel=1e-12)
    assert not hasattr(fixed, "lower_at_look")
    assert not hasattr(anytime, "lower_at_fixed_n")
    with pytest.raises(ArgumentError, match="counted from 1"):
        anytime.lower_at_look(90, 100, 0)
    with pytest.raises(ArgumentError, match="alpha"):
        ClopperPearson(0.0)


def test_levels_that_are_too_small_are_refused_when_they_are_named_not_when_they_are_used() -> None:
    for make, alpha in ((ClopperPearson, 1e-301), (SpendingClopperPearson, 1e-299), (AlphaLedger, 1e-301)):
        with pytest.raises(ArgumentError, match=r"alpha: must lie strictly between 0 and 1, and be at least 1e-.00"):
            make(alpha)
    with pytest.raises(ArgumentError, match="at least 1e-200; got 1e-299"):
        group_sequential_design(0.7, 1e-299, 0.001, 1000)
    SpendingClopperPearson(1e-200).lower_at_look(10**9, 10**9, 10**12)
    with pytest.raises(AlphaError, match=r"alpha: its share for the half must be .* at least 1e-300; got 5e-301"):
        AlphaLedger(1e-300).take("half", 5e-301)

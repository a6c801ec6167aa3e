"""The e-value against numerical integration, and where its factors would underflow."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from ringfence.errors import ArgumentError
from ringfence.stats import evalue_certifies, log_evalue


def integral(successes: int, draws: int, p0: float, prior: tuple[float, float]) -> mpmath.mpf:
    a, b = prior
    with mpmath.workdps(30):
        p0 = mpmath.mpf(p0)
        peak = max(mpmath.mpf(successes) / draws, p0) if draws else p0
        points = sorted(
            {p0, p0 + (1 - p0) / 1000, p0 + (1 - p0) / 30, (peak + p0) / 2, peak, (peak + 1) / 2, mpmath.mpf(1)}
        )

        def density(q: mpmath.mpf) -> mpmath.mpf:
            return q ** (a - 1) * (1 - q) ** (b - 1)

        def evidence(q: mpmath.mpf) -> mpmath.mpf:
            return (q / p0) ** successes * ((1 - q) / (1 - p0)) ** (draws - successes) * density(q)

        return mpmath.log(mpmath.quad(evidence, points) / mpmath.quad(density, points))


@pytest.mark.parametrize("prior", [(1.0, 1.0), (0.5, 0.5), (3.0, 2.0)])
@pytest.mark.parametrize(
    ("successes", "draws", "p0"), [(0, 0, 0.7), (95, 100, 0.9), (60, 100, 0.9), (990, 1000, 0.97), (30, 40, 0.5)]
)
def test_it_is_the_integral(successes: int, draws: int, p0: float, prior: tuple[float, float]) -> None:
    expected = float(integral(successes, draws, p0, prior))
    assert float(log_evalue(successes, draws, p0, prior)) == pytest.approx(expected, abs=2e-5, rel=1e-5)


def test_it_stays_finite_where_the_beta_function_underflows() -> None:
    """At 60 of 100 and far below, the series takes over; both sides of the switch agree."""
    successes = np.arange(0, 100_001, 500)
    values = log_evalue(successes, 100_000, 0.9)
    assert np.isfinite(values).all()
    assert (np.diff(values) > 0).all()


def test_it_certifies_when_the_evidence_reaches_one_over_alpha() -> None:
    assert evalue_certifies(1000, 1000, 0.9, 1e-3)
    assert not evalue_certifies(900, 1000, 0.9, 1e-3)
    np.testing.assert_array_equal(evalue_certifies([10, 10_000], [10, 10_000], 0.99, 1e-3), [False, True])


def test_it_certifies_exactly_from_one_over_alpha_on() -> None:
    successes = np.arange(2001)
    evidence = log_evalue(successes, 2000, 0.6)
    certified = evalue_certifies(successes, 2000, 0.6, 0.01)
    np.testing.assert_array_equal(certified, evidence >= np.log(100) + 1e-7 + 1e-14 * 2000)
    # Within a factor of 2 there are counts too: another level would decide otherwise.
    assert ((evidence >= np.log(50)) & ~certified).any()


def test_nonsense_is_refused() -> None:
    for arguments in ((5, 4, 0.5), (1, 4, 1.0), (1, 4, 0.0)):
        with pytest.raises(ArgumentError):
            log_evalue(*arguments)


def test_single_numbers_far_below_p0_have_a_value_too() -> None:
    assert float(log_evalue(3000, 10_000, 0.9)) == log_evalue([3000], 10_000, 0.9)[0]
    assert float(log_evalue(3000, 10_000, 0.9)) < 0


@pytest.mark.parametrize("draws", [10**7, 10**9, 10**11])
def test_what_more_draws_round_more_never_certifies(draws: int) -> None:
    """Eight standard deviations above p0 the truncation of the prior is lost in no digit: logarithms alone are left."""
    p0 = 0.9
    with mpmath.workdps(40):
        base, half = mpmath.mpf(p0), mpmath.mpf(1) / 2
        inside = mpmath.log(mpmath.betainc(half, half, base, 1))
        for more in range(40):
            hits = int(draws * p0 + (8 + more / 20) * (draws * p0 * (1 - p0)) ** 0.5)
            misses = draws - hits
            found = [mpmath.loggamma(one) for one in (misses + half, hits + half, mpmath.mpf(draws + 1))]
            evidence = found[0] + found[1] - found[2] - inside - hits * mpmath.log(base) - misses * mpmath.log(1 - base)
            assert not evalue_certifies(hits, draws, p0, float(mpmath.exp(-evidence - 1e-9)))
            assert evalue_certifies(hits, draws, p0, float(mpmath.exp(-evidence + 3e-7 + 3e-14 * draws)))

"""Laws of all group-sequential designs: the exact error is at most alpha, in theory and in simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from ringfence.stats import group_sequential_design


@pytest.mark.parametrize("p0", [0.5, 0.55, 0.8413, 0.97725, 0.999, 0.9999])
@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(("look", "ratio"), [(100, 1.1), (1000, 1.25), (37, 1.5)])
def test_the_error_is_at_most_alpha(p0: float, alpha: float, look: int, ratio: float) -> None:
    design = group_sequential_design(p0, alpha, n_max=20_000, look=look, ratio=ratio)
    assert design.error(p0) <= alpha
    assert design.power(p0) <= design.error(p0) * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(
    p0=st.floats(0.05, 0.9995),
    alpha=st.floats(1e-9, 0.3),
    beta=st.floats(1e-9, 0.3),
    n_max=st.integers(1, 3000),
    look=st.integers(1, 500),
    ratio=st.floats(1.05, 3),
)
def test_the_error_is_at_most_alpha_whatever_the_settings(
    p0: float, alpha: float, beta: float, n_max: int, look: int, ratio: float
) -> None:
    design = group_sequential_design(p0, alpha, beta, max(n_max, look), look, ratio)
    assert design.error(p0) <= alpha
    assert design.error(p0 * 0.97) <= design.error(p0) * (1 + 1e-9)
    assert design.error(p0) - design.power(p0) <= beta
    assert (design.give_up_at < design.looks).all()
    assert design.give_up_at[-1] == -1
    assert 0 < design.expected_draws(p0) <= design.looks[-1] * (1 + 1e-9)


def test_most_of_alpha_is_used() -> None:
    """A design that never certified would pass the laws above."""
    for p0 in (0.55, 0.8413, 0.97725):
        assert group_sequential_design(p0, 1e-3).error(p0) > 0.98e-3


@pytest.mark.parametrize("p0", [0.6, 0.9, 0.99])
def test_simulated_runs_agree_with_the_exact_figures(p0: float) -> None:
    """200,000 simulated inputs at p0 for the error, at a better p for power and draws."""
    runs, alpha = 200_000, 0.01
    design = group_sequential_design(p0, alpha, beta=0.01, n_max=3000)
    rng = np.random.default_rng(12)
    for p in (p0, p0 + (1 - p0) / 4):
        successes, going, ignoring = np.zeros(runs, int), np.ones(runs, bool), np.ones(runs, bool)
        certified = wrong = spent = 0
        for wait, certify, give_up in zip(
            np.diff(design.looks, prepend=0), design.certify_at, design.give_up_at, strict=True
        ):
            spent += wait * int(going.sum())
            successes += rng.binomial(wait, p, runs)
            crossed = successes >= certify
            certified += int((going & crossed).sum())
            wrong += int((ignoring & crossed).sum())
            ignoring &= ~crossed
            going &= ~crossed & (successes > give_up)
        for count, rate in ((certified, design.power(p)), (wrong, design.error(p))):
            assert binom.ppf(1e-9, runs, rate) <= count <= binom.isf(1e-9, runs, rate)
        assert spent / runs == pytest.approx(design.expected_draws(p), rel=0.02)
        if p == p0:
            assert wrong <= binom.isf(1e-9, runs, alpha)

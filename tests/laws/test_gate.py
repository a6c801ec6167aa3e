"""The gate's own failure rate: how often its bound lies above the truth, over inputs and noise together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from ringfence.gate import lower_bound


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("alpha", [1e-6, 0.001, 0.1])
@pytest.mark.parametrize("inputs", [1, 7, 50, 500])
def test_its_own_failure_rate_is_at_most_what_it_says(inputs: int, alpha: float, confidence: float) -> None:
    """Exactly, whatever the truth: P(the bound lies above the truth) <= 1 - confidence.

    A share t of the population is right and robust; every other input is claimed with the largest probability that a
    certificate allows, alpha.
    """
    bounds = np.array([lower_bound(k, inputs, confidence, alpha) for k in range(inputs + 1)])
    assert (np.diff(bounds) >= 0).all()
    for truth in np.linspace(0, 0.999, 113):
        too_high = np.flatnonzero(bounds > truth)
        rate = binom.sf(too_high[0] - 1, inputs, truth + alpha * (1 - truth)) if len(too_high) else 0.0
        assert rate <= 1 - confidence + 1e-12


def test_the_bound_is_not_far_from_the_best_one() -> None:
    """One more certified input than the test at the threshold needs is enough: nothing is given away."""
    for inputs, truth in ((50, 0.6), (500, 0.6), (500, 0.9)):
        needed = next(k for k in range(inputs + 1) if lower_bound(k, inputs, 0.95, 1e-9) >= truth)
        assert binom.sf(needed - 2, inputs, truth) > 0.05


def test_simulated_runs_pass_wrongly_as_rarely_as_promised() -> None:
    generator = np.random.default_rng(5)
    truth, alpha, inputs, runs = 0.6, 0.05, 100, 4000
    robust = generator.binomial(inputs, truth, runs)
    claimed = robust + generator.binomial(inputs - robust, alpha)
    wrong = sum(lower_bound(int(k), inputs, 0.95, alpha) > truth for k in claimed)
    assert binom.sf(wrong - 1, runs, 0.05) > 1e-6

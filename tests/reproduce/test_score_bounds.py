"""The statistical bounds against simulated ensembles, and the comparisons against the bounds."""

from __future__ import annotations

import numpy as np
import pytest
from score_bounds import (
    comparison_statistic,
    confidence_portions,
    max_margin_bound,
    portion,
    preferred_ensemble,
    single_bound,
    threshold,
    weight_concentration,
    weighted_bound,
    weighted_hoeffding_bound,
)
from score_models import worst_scores
from slabs import max_margin_prediction, weighted_prediction

from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

DRAWS = 40_000
NOISE = 5 * np.sqrt(0.25 / DRAWS)


def uniform(rng: np.random.Generator, members: int) -> FloatArray:
    return rng.uniform(0.3, 0.55, (DRAWS, members))


def two_point(rng: np.random.Generator, members: int) -> FloatArray:
    return rng.choice([0.36, 0.62], (DRAWS, members))


def extreme(rng: np.random.Generator, members: int) -> FloatArray:
    """Chebyshev's worst case for one member: a tenth of the mass just beyond Lam = 1/3, and as much opposite."""
    return rng.choice([0.33, 0.5, 0.67], (DRAWS, members), p=[0.1, 0.8, 0.1])


def bell(rng: np.random.Generator, members: int) -> FloatArray:
    return rng.beta(12, 12, (DRAWS, members))


@pytest.mark.parametrize("p", [0.0, 0.03])
@pytest.mark.parametrize("members", [1, 3, 8])
@pytest.mark.parametrize("law", [uniform, two_point, extreme, bell])
def test_bounds_hold_for_simulated_ensembles(law: object, members: int, p: float) -> None:
    rng = np.random.default_rng(members)
    label, weights, lam = law(rng, members), rng.uniform(0.5, 1.0, members), 0.5  # type: ignore[operator]
    scores = worst_scores(label, lam, p, rng)
    mean, deviation, minimum = label.mean(), label.std(), label.min(1).std()
    right = (weighted_prediction(scores, weights) == 0).mean()
    assert right > weighted_bound(mean, deviation, lam, p, weights) - NOISE
    assert right > weighted_hoeffding_bound(mean, lam, p, weights) - NOISE
    assert (max_margin_prediction(scores) == 0).mean() > max_margin_bound(mean, minimum, lam, p) - NOISE
    assert (scores[:, 0].argmax(1) == 0).mean() > single_bound(mean, deviation, lam, p) - NOISE


def test_the_bounds_say_something() -> None:
    assert weighted_bound(0.5, 0.1, 0.5, 0.01, np.ones(5)) == pytest.approx(0.99 - 0.01 / 5 / (2 * (1 / 6) ** 2))
    assert single_bound(0.5, 0.1, 0.5, 0.01) == pytest.approx(0.81)
    assert max_margin_bound(0.5, 0.05, 0.5, 0.0) == pytest.approx(1 - 0.0025 / (2 / 36))
    assert weighted_hoeffding_bound(0.5, 0.5, 0.0, np.ones(100)) == pytest.approx(1 - np.exp(-200 / 36))
    assert single_bound(0.3, 0.1, 0.9, 0.0) == 0.0  # mean below Lam: nothing is known
    assert weight_concentration([2.0, 2.0, 2.0, 2.0]) == pytest.approx(0.25)
    assert portion(1.0) == 0.5


def test_threshold_separates_the_bounds_exactly() -> None:
    rng, seen = np.random.default_rng(0), {"weighted": 0, "max_margin": 0, "undecided": 0}
    for _ in range(3000):
        members = int(rng.integers(2, 12))
        lam1, lam2 = rng.uniform(0.05, 1.0, 2)
        mean = rng.uniform(max(portion(lam1), portion(lam2)) + 0.02, 0.98)
        deviation = rng.uniform(0.001, 0.02)
        minimum = deviation * rng.uniform(1 / members, 1.2)
        choice = preferred_ensemble(lam1, lam2, mean, deviation, minimum, members)
        seen[choice] += 1
        widest = minimum / (mean - portion(lam2))
        spread = [1.0, 1 / np.sqrt(members), rng.uniform(1 / np.sqrt(members), 1)]
        weighted = np.array(spread) * deviation / (mean - portion(lam1))
        if choice == "weighted":
            assert (weighted < widest * (1 + 1e-9)).all()
        if choice == "max_margin":
            assert (weighted > widest * (1 - 1e-9)).all()
    assert min(seen.values()) > 200
    assert threshold(1.0, 0.7, 0.8) == pytest.approx(1.0)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="lam"):
        portion(1.5)
    with pytest.raises(ArgumentError, match="p: must lie"):
        single_bound(0.5, 0.1, 0.5, 1.2)
    with pytest.raises(ArgumentError, match="mean"):
        threshold(1.0, 0.2, 0.9)


def test_confidence_portions_of_known_scores() -> None:
    scores = np.array([[[0.6, 0.3, 0.1], [0.5, 0.1, 0.4]], [[1.0, 0.0, 0.0], [0.2, 0.8, 0.0]]])
    shares = confidence_portions(scores, 0)
    np.testing.assert_allclose(shares.single, [[0.75, 0.8], [0.0, 1.0]])
    np.testing.assert_allclose(shares.weighted, [0.5 / 0.9, 1.0])
    np.testing.assert_allclose(shares.max_margin, [0.8, 1.0])
    assert shares.lams(0.5) == pytest.approx((0.5 / 0.9, 0.8), abs=0.5)
    assert shares.lams(0.0) == (1.0, 1.0)
    assert shares.transferability == pytest.approx((0.5 / 0.9 + 1) / 1.8)
    with pytest.raises(ArgumentError, match="label"):
        confidence_portions(scores, 3)


def test_the_statistic_is_larger_when_members_err_alike() -> None:
    rng = np.random.default_rng(0)
    label = rng.uniform(0.5, 0.9, (4000, 4))
    alike, apart = np.zeros((4000, 4, 6)), np.zeros((4000, 4, 6))
    for member in range(4):
        alike[:, member, [0, 1]] = np.stack([label[:, member], 1 - label[:, member]], 1)
        apart[:, member, [0, 1 + member]] = np.stack([label[:, member], 1 - label[:, member]], 1)
    assert comparison_statistic(confidence_portions(alike, 0)) > comparison_statistic(confidence_portions(apart, 0))
    assert np.isnan(comparison_statistic(confidence_portions(alike, 1)))

"""Law: exact noise is corrected everywhere for the bits it is drawn from; what it certifies holds on its lattice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from every_procedure import CASES, steady_tally
from scipy.special import ndtr, ndtri

from ringfence.errors import ArgumentError
from ringfence.mechanisms import (
    Mechanism,
    best_of,
    default_mechanism,
    mechanisms_named,
    neyman_pearson,
    one_sided,
    renyi,
)
from ringfence.procedures import Given, Procedure, claims
from ringfence.stats import NoiseLaw
from ringfence.stats.lattice import WORD, thresholds
from ringfence.types import ABSTAIN, FloatArray, IntArray

SIGMA = 0.5
FLOAT, EXACT = NoiseLaw("gaussian", SIGMA), NoiseLaw("gaussian", SIGMA, "exact")
WIDE = replace(EXACT, slack=0.01)
"""As if 64-bit words were a few bits: what is wrong with a correction of 1e-13 is seen only when it is large."""
RULES = {one.name: one for one in mechanisms_named("all")} | {"best_of": best_of(one_sided, renyi)}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def test_exact_noise_without_its_coordinates_proves_nothing() -> None:
    for ask in (
        lambda: neyman_pearson(0.9, 0.05, EXACT),
        lambda: neyman_pearson.between(0.9, 0.05, EXACT),
        lambda: neyman_pearson.probability_for(0.1, EXACT),
        lambda: neyman_pearson.probability_for(0.0, EXACT),
    ):
        with pytest.raises(ArgumentError, match="number of coordinates"):
            ask()


@pytest.mark.parametrize("coordinates", [-1, -(10**18)])
def test_a_correction_never_moves_bounds_towards_each_other(coordinates: int) -> None:
    for ask in (
        lambda: EXACT.over(coordinates),
        lambda: replace(EXACT, slack=-1e-3),
        lambda: replace(EXACT, slack=np.nan),
    ):
        with pytest.raises(ArgumentError, match="at least 0"):
            ask()


def test_the_correction_is_twice_what_the_sampler_differs_by_for_every_coordinate() -> None:
    table = thresholds("gaussian", SIGMA, 255)
    assert EXACT.lattice == 255
    assert EXACT.over(3072).slack == 3072 * (len(table.values) + 5) / WORD
    assert 1e-13 < EXACT.over(3072).slack < 1e-12
    assert EXACT.over(3072).unit.slack == EXACT.over(3072).slack  # of the scale at which it is drawn
    assert FLOAT.over(3072) == FLOAT
    assert FLOAT.slack == 0


@every_rule
def test_bounds_are_moved_apart_before_any_proof(rule: Mechanism) -> None:
    p_a, p_b = (grid.ravel() for grid in np.meshgrid(np.linspace(0.02, 1.0, 50), np.linspace(0.0, 0.9, 37)))
    p_b = np.minimum(p_b, 1 - p_a)
    moved = np.maximum(p_a - 0.01, 0), np.minimum(p_b + 0.01, 1)
    np.testing.assert_allclose(rule(p_a, p_b, WIDE), rule(*moved, FLOAT), rtol=1e-12)
    assert (rule(p_a, p_b, WIDE) <= rule(p_a, p_b, FLOAT)).all()
    if rule.joins:
        np.testing.assert_allclose(rule.between(p_a, p_b, WIDE), rule.between(*moved, FLOAT), rtol=1e-12)


@every_rule
def test_the_probability_for_a_radius_is_raised_by_as_much(rule: Mechanism) -> None:
    radii = np.array([0.0, 1e-6, 0.01, 0.1, 0.3])
    np.testing.assert_allclose(rule.probability_for(radii, WIDE), rule.probability_for(radii, FLOAT) + 0.01, atol=2e-9)


@every_rule
@pytest.mark.parametrize("coordinates", [1, 4, 3072])
def test_next_to_certainty_the_correction_is_not_rounded_away(rule: Mechanism, coordinates: int) -> None:
    """Next to 1 floats lie farther apart than the correction of a few coordinates; failures tell how far."""
    law = EXACT.over(coordinates)
    assert law.slack is not None
    p_a = 1 - np.concatenate([[0.0], np.arange(1, 40) * 2.0**-53, np.geomspace(1e-14, 0.3, 400)])
    failure = (1 - p_a) + law.slack
    assert (rule(p_a, 1 - p_a, law) <= -SIGMA * ndtri(failure)).all()
    if rule.joins:
        other = np.maximum(1 - p_a[:, None] - law.slack, 0)
        truth = SIGMA * (ndtri(other) - ndtri(failure)) / 2
        assert (rule.between(p_a, p_a[:, None], law) <= np.maximum(truth, 0)).all()


def test_an_adversary_who_draws_the_noise_within_the_slack_gains_nothing() -> None:
    """Half of the slack is lost at x, half at x': the class must still lead at every distance below the radius."""
    half = 0.005
    for p_a, p_b in ((0.6, 0.4), (0.9, 0.1), (0.99, 0.01), (0.3, 0.1), (0.5, 0.2), (0.95, 0.012), (0.2, 0.02)):
        distance = np.linspace(0, float(neyman_pearson(p_a, p_b, WIDE)), 200)
        assert distance[-1] > 0
        top = ndtr(ndtri(p_a - half) - distance / SIGMA) - half
        other = ndtr(ndtri(p_b + half) + distance / SIGMA) + half
        assert (top > other).all()


def test_a_half_space_on_the_lattice_is_certified_up_to_its_edge_and_not_beyond() -> None:
    """Class A where X + K >= 0: at X = m its probability as drawn is exact, and X = -1, m + 1 steps away, is not A."""
    table = thresholds("gaussian", SIGMA, 255)
    for coordinates in (1, 3072, 224 * 224 * 3):
        law = EXACT.over(coordinates)
        for m in range(0, 700, 7):
            lost = int(table.values[-m - 1 - table.lowest])  # words of P(K <= -m - 1)
            p_a, p_b = 1 - lost / WORD, lost / WORD
            for rule in (one_sided, neyman_pearson):
                radius = float(rule(p_a, p_b, law))
                assert radius < (m + 1) / 255
                assert radius <= (m + 0.5) / 255
                assert radius >= (m + 0.5) / 255 * (1 - 1e-4)


def follow(test: Procedure, law: NoiseLaw, p: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Predictions and radii (rows,) on streams of draws that are the same under every law, and float noise's radii
    where this one ended."""
    given = Given(3, law, default_mechanism(law.family), facts={"core": np.zeros(len(p), np.int64)})
    state = test.start(len(p), given)
    while (wanted := test.request(state)).any():
        live = wanted > 0
        seen = steady_tally(test, p[live], state["drawn"][live], wanted[live])
        state[live] = test.update(state[live], seen, given)
    prediction, radius, _ = claims(test.conclude(state, given), given)
    plain = replace(given, law=NoiseLaw(law.family, SIGMA))
    return prediction, radius, claims(test.conclude(state, plain), plain)[1]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", ["gaussian", "uniform", "laplace"])
def test_no_procedure_claims_more_with_exact_noise_and_all_pay_for_it(name: str, family: str) -> None:
    test, p = CASES[name], np.linspace(0.4, 0.999, 400)
    exact = NoiseLaw(family, SIGMA, "exact")
    before, float_radius, _ = follow(test, NoiseLaw(family, SIGMA), p)
    for law in (exact.over(3072), replace(exact, slack=0.01)):
        prediction, radius, there = follow(test, law, p)
        # A grid ends anytime's draws elsewhere, so that it is compared at the same counts.
        assert (radius <= (there if name == "anytime, grid" else float_radius)).all()
        assert (before[prediction != ABSTAIN] == prediction[prediction != ABSTAIN]).all()
    if test.claims_radius:
        assert 0 < radius.sum() < float_radius.sum() * (1 - 1e-6)
    else:
        np.testing.assert_array_equal(prediction, before)  # rank tests need no correction


@pytest.mark.parametrize("name", ["staged", "sequential", "aces-sequential"])
def test_a_known_radius_is_tested_at_the_raised_probability(name: str) -> None:
    p0 = float(CASES[name].start(1, Given(3, WIDE, neyman_pearson))["p0"][0])
    assert p0 == pytest.approx(ndtr(0.2 / SIGMA) + 0.01, abs=1e-8)
    assert p0 > ndtr(0.2 / SIGMA) + 0.01

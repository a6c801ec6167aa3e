"""Staged and sequential certification, stepped by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import beta

from ringfence.errors import ArgumentError
from ringfence.procedures import Given, Sequential, Staged
from ringfence.types import ABSTAIN, Tally

GIVEN = Given(num_classes=2, sigma=0.5)


def votes(hits: int, draws: int) -> Tally:
    return Tally({"votes": np.array([[hits, draws - hits, 0]])}, np.array([draws]))


def test_staged_certifies_gives_up_or_goes_on_by_its_two_bounds() -> None:
    test = Staged(0.25, alpha=0.003, beta=0.002, n0=10, stages=(100, 1000, 5000))
    p0 = ndtr(0.5)
    for hits in range(101):
        state = test.update(test.start(1, GIVEN), votes(10, 10))
        state = test.update(state, votes(hits, 100))
        certified = hits > 0 and beta.ppf(0.001, hits, 101 - hits) >= p0
        hopeless = hits < 100 and beta.ppf(1 - 0.001, hits + 1, 100 - hits) < p0
        assert bool(state["done"][0]) == (certified or hopeless)
        prediction = test.conclude(state).prediction[0]
        assert prediction == (0 if certified else ABSTAIN)


def test_staged_ends_with_its_last_stage() -> None:
    test = Staged(0.25, n0=10, stages=(100, 1000))
    state = test.start(1, GIVEN)
    for tally in (votes(10, 10), votes(70, 100), votes(692, 1000)):
        assert test.request(state)[0] == tally.draws[0]
        state = test.update(state, tally)
    assert test.request(state)[0] == 0
    assert test.conclude(state).radius.tolist() == [0.0]  # type: ignore[union-attr]


@pytest.mark.parametrize(("stages", "least"), [(3, 115_905), (5, 123_300)])
def test_last_stage_keeps_the_largest_radius_of_certify(stages: int, least: int) -> None:
    assert math.ceil(100_000 * (1 - math.log(stages) / math.log(0.001))) == pytest.approx(least, abs=1)


def test_sequential_follows_its_design_look_by_look() -> None:
    test = Sequential(0.25, alpha=0.01, beta=0.01, n0=10, n=1000, look=50)
    design = test.design(float(test.start(1, GIVEN)["p0"][0]))
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = rng.uniform(0.5, 0.9)
        state = test.update(test.start(1, GIVEN), votes(10, 10))
        successes = drawn = 0
        for look, certify, give_up in zip(design.looks, design.certify_at, design.give_up_at, strict=True):
            draws = int(test.request(state)[0])
            assert drawn + draws == look
            hits = int(rng.binomial(draws, p))
            successes, drawn = successes + hits, drawn + draws
            state = test.update(state, votes(hits, draws))
            if successes >= certify:
                assert test.conclude(state).prediction[0] == 0
                break
            if successes <= give_up or look == design.looks[-1]:
                assert test.conclude(state).prediction[0] == ABSTAIN
                break
            assert not state["done"][0]
        assert test.request(state)[0] == 0


def test_largest_radius_of_the_default_design() -> None:
    assert Sequential(0.5).largest_radius(1.0) == pytest.approx(3.835, abs=5e-4)


def test_unreachable_radii_are_refused_before_sampling() -> None:
    with pytest.raises(ArgumentError, match=r"prove more than 1\.917"):
        Sequential(2.0).start(1, GIVEN)
    with pytest.raises(ArgumentError, match="radius"):
        Staged(2.0).start(1, GIVEN)


def test_the_lift_makes_the_target_harder() -> None:
    plain = Sequential(0.25).start(1, Given(2, 0.5))["p0"][0]
    lifted = Sequential(0.25).start(1, Given(2, 0.5, norm_bound=2.0))["p0"][0]
    assert ndtr(0.5) <= plain == pytest.approx(ndtr(0.5))
    assert ndtr(1.0) <= lifted == pytest.approx(ndtr(1.0))


def test_larger_radii_count_only_while_all_smaller_ones_crossed() -> None:
    test = Sequential(0.25, n0=10, n=4000, look=100, larger=(0.5, 0.75, 1.4))
    state = test.update(test.start(1, GIVEN), votes(10, 10))
    decisions = test.conclude(test.update(state, votes(100, 100)))
    assert decisions.radius is not None
    reached = decisions.radius[0]
    assert reached in (0.25, 0.5, 0.75)
    designs = [test.design(float(p0)) for p0 in state["grid"][0]]
    crossed = [design.certify_at[0] <= 100 for design in designs]
    assert reached == [0.25, 0.5, 0.75, 1.4][crossed.index(False) - 1]
    assert not crossed[-1]


def test_coarse_looks_grow_faster() -> None:
    fine, coarse = Sequential(0.25, look=100), Sequential(0.25, look=1000)
    p0 = float(fine.start(1, GIVEN)["p0"][0])
    growth = coarse.design(p0).looks[-2] / coarse.design(p0).looks[-3]
    assert growth == pytest.approx(1.25, abs=0.02)
    assert fine.design(p0).looks[-2] / fine.design(p0).looks[-3] == pytest.approx(1.1, abs=0.01)

"""Staged and sequential certification, stepped by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import beta

from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson, one_sided
from ringfence.procedures import Fixed, Given, Sequential, Staged
from ringfence.types import ABSTAIN, Tally

GIVEN = Given(2, 0.5, neyman_pearson)


def votes(hits: int, draws: int) -> Tally:
    return Tally({"votes": np.array([[hits, draws - hits, 0]])}, np.array([draws]))


def test_staged_certifies_gives_up_or_goes_on_by_its_two_bounds() -> None:
    test = Staged(0.25, alpha=0.003, beta=0.002, n0=10, stages=(100, 1000, 5000))
    p0 = ndtr(0.5)
    for hits in range(101):
        state = test.update(test.start(1, GIVEN), votes(10, 10), GIVEN)
        state = test.update(state, votes(hits, 100), GIVEN)
        certified = hits > 0 and beta.ppf(0.001, hits, 101 - hits) >= p0
        hopeless = hits < 100 and beta.ppf(1 - 0.001, hits + 1, 100 - hits) < p0
        assert bool(state["done"][0]) == (certified or hopeless)
        prediction = test.conclude(state, GIVEN).prediction[0]
        assert prediction == (0 if certified else ABSTAIN)


def test_staged_ends_with_its_last_stage() -> None:
    test = Staged(0.25, n0=10, stages=(100, 1000))
    state = test.start(1, GIVEN)
    for tally in (votes(10, 10), votes(70, 100), votes(692, 1000)):
        assert test.request(state)[0] == tally.draws[0]
        state = test.update(state, tally, GIVEN)
    assert test.request(state)[0] == 0
    assert test.conclude(state, GIVEN).radius.tolist() == [0.0]  # type: ignore[union-attr]


@pytest.mark.parametrize("stages", [3, 5])
def test_a_longer_last_stage_keeps_the_largest_radius_of_certify(stages: int) -> None:
    """(alpha/S)^(1/n_S) = alpha^(1/n) at n_S = n (1 - ln S / ln alpha): from there on, and not one percent earlier."""
    last, certify = math.ceil(100_000 * (1 - math.log(stages) / math.log(0.001))), Fixed(0.001, n=100_000)
    for n, enough in ((last + 1, True), (last * 99 // 100, False)):
        staged = Staged(0.5, 0.001, stages=(*range(1000, 1000 * stages, 1000), n))
        assert (staged.best_case(GIVEN) >= certify.best_case(GIVEN)) == enough


def test_sequential_follows_its_design_look_by_look() -> None:
    test = Sequential(0.25, alpha=0.01, beta=0.01, n0=10, n=1000, look=50)
    design = test.design(float(test.start(1, GIVEN)["p0"][0]))
    rng = np.random.default_rng(0)
    for _ in range(200):
        p = rng.uniform(0.5, 0.9)
        state = test.update(test.start(1, GIVEN), votes(10, 10), GIVEN)
        successes = drawn = 0
        for look, certify, give_up in zip(design.looks, design.certify_at, design.give_up_at, strict=True):
            draws = int(test.request(state)[0])
            assert drawn + draws == look
            hits = int(rng.binomial(draws, p))
            successes, drawn = successes + hits, drawn + draws
            state = test.update(state, votes(hits, draws), GIVEN)
            if successes >= certify:
                assert test.conclude(state, GIVEN).prediction[0] == 0
                break
            if successes <= give_up or look == design.looks[-1]:
                assert test.conclude(state, GIVEN).prediction[0] == ABSTAIN
                break
            assert not state["done"][0]
        assert test.request(state)[0] == 0


@pytest.mark.parametrize(
    "test", [Staged(0.25, n0=10, stages=(100, 400)), Sequential(0.25, n0=10, n=400)], ids=lambda test: test.name
)
def test_the_class_of_a_known_radius_comes_from_the_first_draws_only(test: Staged | Sequential) -> None:
    """Ten draws choose class 0; all that follow say class 1, which was not chosen and so is never claimed."""
    state = test.update(test.start(1, GIVEN), votes(10, 10), GIVEN)
    while wanted := int(test.request(state)[0]):
        state = test.update(state, votes(0, wanted), GIVEN)
    assert test.conclude(state, GIVEN).prediction.tolist() == [ABSTAIN]


def test_largest_radius_of_the_default_design() -> None:
    assert Sequential(0.5).best_case(Given(2, 1.0, neyman_pearson)) == pytest.approx(3.835, abs=5e-4)


def test_unreachable_radii_are_refused_before_sampling() -> None:
    with pytest.raises(ArgumentError, match=r"prove more than 1\.917"):
        Sequential(2.0).start(1, GIVEN)
    with pytest.raises(ArgumentError, match="radius"):
        Staged(2.0).start(1, GIVEN)


def test_the_lift_makes_the_target_harder() -> None:
    plain = Sequential(0.25).start(1, Given(2, 0.5, neyman_pearson))["p0"][0]
    lifted = Sequential(0.25).start(1, Given(2, 0.5, neyman_pearson, norm_bound=2.0))["p0"][0]
    assert ndtr(0.5) <= plain == pytest.approx(ndtr(0.5))
    assert ndtr(1.0) <= lifted == pytest.approx(ndtr(1.0))


def test_larger_radii_count_only_while_all_smaller_ones_crossed() -> None:
    test = Sequential(0.25, n0=10, n=4000, look=100, larger=(0.5, 0.75, 1.4))
    state = test.update(test.start(1, GIVEN), votes(10, 10), GIVEN)
    decisions = test.conclude(test.update(state, votes(100, 100), GIVEN), GIVEN)
    assert decisions.radius is not None
    reached = decisions.radius[0]
    assert reached in (0.25, 0.5, 0.75)
    designs = [test.design(float(p0)) for p0 in state["grid"][0]]
    crossed = [design.certify_at[0] <= 100 for design in designs]
    assert reached == [0.25, 0.5, 0.75, 1.4][crossed.index(False) - 1]
    assert not crossed[-1]


def test_a_larger_radius_that_crosses_before_a_smaller_one_proves_nothing() -> None:
    """Boundaries are integers with budgets of their own: at some looks the larger radius asks for fewer hits."""
    test = Sequential(0.26, alpha=0.05, beta=0.01, n0=10, n=300, look=10, larger=(0.27,))
    small, large = (test.design(float(one_sided.probability_for(radius, 0.5))) for radius in (0.26, 0.27))
    state, before = test.update(test.start(1, GIVEN), votes(10, 10), GIVEN), 0
    for look, hits in enumerate((8, 17, 26, 35)):
        assert hits < small.certify_at[look]
        assert (hits >= large.certify_at[look]) == (look == 3)
        state, before = test.update(state, votes(hits - before, 10), GIVEN), hits
    decisions = test.conclude(state, GIVEN)
    assert decisions.prediction.tolist() == [ABSTAIN]
    assert decisions.radius is not None
    assert decisions.radius.tolist() == [0.0]


def test_coarse_looks_grow_faster() -> None:
    fine, coarse = Sequential(0.25, look=100), Sequential(0.25, look=1000)
    p0 = float(fine.start(1, GIVEN)["p0"][0])
    growth = coarse.design(p0).looks[-2] / coarse.design(p0).looks[-3]
    assert growth == pytest.approx(1.25, abs=0.02)
    assert fine.design(p0).looks[-2] / fine.design(p0).looks[-3] == pytest.approx(1.1, abs=0.01)

"""Fixed, two-sided and predict, stepped by hand on counts whose bounds are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson, one_sided
from ringfence.procedures import Fixed, Given, Predict, Procedure, TwoSided, claims, procedure
from ringfence.types import ABSTAIN, Tally

GIVEN = Given(3, 0.5, neyman_pearson)


def votes(*rows: tuple[int, ...]) -> Tally:
    """Votes per row, with no invalid draws."""
    counts = np.array([[*row, 0] for row in rows], np.int64)
    return Tally({"votes": counts}, counts.sum(1))


def run(test: Procedure, *tallies: Tally):  # type: ignore[no-untyped-def]
    state = test.start(len(tallies[0]), GIVEN)
    for tally in tallies:
        assert (test.request(state) == tally.draws).all()
        state = test.update(state, tally, GIVEN)
    assert (test.request(state) == 0).all()
    return test.conclude(state, GIVEN)


def test_fixed_is_cohens_certify() -> None:
    decisions = run(Fixed(0.001, n0=10, n=1000), votes((2, 8, 0), (10, 0, 0)), votes((10, 990, 0), (600, 300, 100)))
    lower = beta.ppf(0.001, [990, 600], [11, 401])
    assert decisions.prediction.tolist() == [1, 0]
    np.testing.assert_allclose(decisions.p_a, lower, rtol=1e-6)
    assert (decisions.p_a <= lower).all()
    prediction, radius, _ = claims(decisions, replace(GIVEN, mechanism=one_sided))
    np.testing.assert_allclose(radius, 0.5 * norm.ppf(lower), rtol=1e-5)
    assert prediction.tolist() == [1, 0]


def test_the_class_comes_from_the_first_draws_only() -> None:
    decisions = run(Fixed(0.001, n0=10, n=1000), votes((6, 4, 0)), votes((1, 999, 0)))
    prediction, radius, _ = claims(decisions, GIVEN)
    assert prediction.tolist() == [ABSTAIN]
    assert radius.tolist() == [0.0]


def test_two_sided_bounds_the_largest_other_class() -> None:
    decisions = run(TwoSided(0.001, n0=10, n=1000), votes((10, 0, 0)), votes((450, 150, 400)))
    np.testing.assert_allclose(decisions.p_a, beta.ppf(0.0005, 450, 551), rtol=1e-6)
    np.testing.assert_allclose(decisions.p_b, beta.ppf(1 - 0.0005, 401, 600), rtol=1e-6)


def test_two_sided_never_claims_more_than_one_minus_p_a_leaves() -> None:
    decisions = run(TwoSided(0.001, n0=10, n=1000), votes((10, 0, 0)), votes((1000, 0, 0)))
    assert decisions.p_b[0] <= 1 - decisions.p_a[0]
    assert decisions.p_b[0] == pytest.approx(1 - decisions.p_a[0], rel=1e-6)


def test_invalid_scores_count_against_the_class() -> None:
    spoiled = Tally({"votes": np.array([[900, 0, 0, 100]])}, np.array([1000]))
    decisions = run(Fixed(0.001, n0=10, n=1000), votes((10, 0, 0)), spoiled)
    np.testing.assert_allclose(decisions.p_a, beta.ppf(0.001, 900, 101), rtol=1e-6)


def test_invalid_scores_are_a_rival_of_two_sided_bounds() -> None:
    """45% of the draws gave no scores: without them as a rival, class 0 would seem far ahead of the 10% of class 1."""
    spoiled = Tally({"votes": np.array([[450, 100, 0, 450]])}, np.array([1000]))
    decisions = run(TwoSided(0.001, n0=10, n=1000), votes((10, 0, 0)), spoiled)
    np.testing.assert_allclose(decisions.p_b, beta.ppf(1 - 0.0005, 451, 550), rtol=1e-6)
    assert claims(decisions, GIVEN)[0].tolist() == [ABSTAIN]


def test_predict_asks_the_rank_test_on_both_sides() -> None:
    decisions = run(Predict(0.001, n=20), votes((18, 2, 0), (17, 3, 0), (11, 9, 0)))
    # 2 P(Bin(20, 1/2) >= 18) = 4.0e-4, and 2.6e-3 for 17.
    assert decisions.prediction.tolist() == [0, ABSTAIN, ABSTAIN]
    assert decisions.radius is not None
    assert decisions.radius.tolist() == [0.0, 0.0, 0.0]


def test_predict_names_a_class_exactly_where_the_rank_test_passes_at_alpha() -> None:
    """Every possible lead among 200 draws: 2 P(Bin(200, 1/2) >= hits) <= alpha, and nothing beyond it."""
    hits = np.arange(101, 201)
    decisions = run(Predict(0.01, n=200), votes(*((int(one), 200 - int(one), 0) for one in hits)))
    passes = 2 * binom.sf(hits - 1, 200, 0.5) <= 0.01
    assert decisions.prediction.tolist() == np.where(passes, 0, ABSTAIN).tolist()
    # Within twice the level there are counts too: another level would decide otherwise.
    assert ((2 * binom.sf(hits - 1, 200, 0.5) <= 0.02) & ~passes).any()


@pytest.mark.parametrize("test", [Fixed(0.01, n0=5, n=50), TwoSided(0.01, n0=5, n=50)])
def test_nothing_is_claimed_before_the_draws_are_in(test: Procedure) -> None:
    state = test.start(1, GIVEN)
    assert claims(test.conclude(state, GIVEN), GIVEN)[0].tolist() == [ABSTAIN]


def test_largest_radius_is_reached_when_all_draws_agree() -> None:
    test = Fixed(0.001, n0=1, n=1000)
    decisions = run(test, votes((1, 0, 0)), votes((1000, 0, 0)))
    radius = claims(decisions, replace(GIVEN, mechanism=one_sided))[1][0]
    assert radius == pytest.approx(test.best_case(GIVEN), rel=1e-6)
    assert Fixed().best_case(Given(2, 1.0, neyman_pearson)) == pytest.approx(3.811, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "settings", "argument"),
    [
        ("fixed", {"alpha": 0.0}, "alpha"),
        ("fixed", {"alpha": 1.0}, "alpha"),
        ("fixed", {"n": 0}, "n"),
        ("two-sided", {"lower_share": 1.0}, "lower_share"),
        ("staged", {"radius": 0.5, "stages": (100, 10)}, "stages"),
        ("sequential", {"radius": -1.0}, "radius"),
        ("sequential", {"radius": 0.5, "larger": (0.4,)}, "larger"),
        ("anytime", {"tolerance": 1.5}, "tolerance"),
        ("anytime", {"seconds": 0.0}, "seconds"),
        ("fixt", {}, "procedure"),
        ("fixed", {"radius": 0.5}, "radius"),
    ],
)
def test_wrong_settings_are_named(name: str, settings: dict[str, object], argument: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        procedure(name, settings)
    assert caught.value.argument == argument

"""Multinomial: what each form proves from the same counts, and what it pays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Multinomial
from ringfence.procedures.base import Decisions
from ringfence.stats import ClopperPearson, rank_test
from ringfence.types import ABSTAIN, Tally

N, ALPHA = 1000, 0.01


def decide(form: str, votes: list[int], invalid: int = 0) -> Decisions:
    procedure = Multinomial(ALPHA, N, form)  # type: ignore[arg-type]
    given = Given(len(votes), 1.0, neyman_pearson)
    state = procedure.start(1, given)
    assert procedure.request(state).tolist() == [N]
    state = procedure.update(state, Tally({"votes": np.array([[*votes, invalid]])}, np.array([N])), given)
    assert procedure.request(state).tolist() == [0]
    return procedure.conclude(state, given)


@pytest.mark.parametrize(
    ("form", "lower", "upper"),
    [("two-sided", ALPHA / 4, ALPHA / 4), ("one-sided", ALPHA / 2, None), ("paper", ALPHA / 2, ALPHA / 2)],
)
def test_bounds_are_clopper_pearson_at_their_shares(form: str, lower: float, upper: float | None) -> None:
    found = decide(form, [100, 650, 200, 50])
    p_a = ClopperPearson(lower).lower_at_fixed_n(np.array([650]), N)[0]
    p_b = 1 - p_a if upper is None else ClopperPearson(upper).upper_at_fixed_n(np.array([200]), N)[0]
    assert (found.prediction[0], found.p_a[0], found.p_b[0]) == (1, p_a, min(p_b, 1 - p_a))


@pytest.mark.parametrize("form", ["two-sided", "one-sided", "paper"])
def test_shares_never_exceed_alpha(form: str) -> None:
    spent = Multinomial(ALPHA, N, form).spent  # type: ignore[arg-type]
    assert sum(spent.values()) == pytest.approx(ALPHA)


def test_the_rank_test_stops_a_close_race() -> None:
    close, clear = [350, 300, 350 - 0, 0], [420, 300, 280, 0]
    close[2] = N - sum(close[:2])
    assert rank_test(np.array([350]), np.array([350]))[0] > ALPHA / 2
    assert decide("two-sided", close).prediction[0] == ABSTAIN
    assert rank_test(np.array([420]), np.array([300]))[0] < ALPHA / 2
    assert decide("two-sided", clear).prediction[0] == 0


def test_the_rank_test_has_half_of_alpha() -> None:
    """Every lead of 420 draws over its rival among three classes: half of alpha decides, all of it would not."""
    lead, between = 420, 0
    for rival in range(300, 420):
        rest = N - lead - rival
        p_value = 2 * binom.sf(lead - 1, lead + rival, 0.5)
        found = decide("two-sided", [lead, rival, rest // 2, rest - rest // 2])
        assert found.prediction[0] == (0 if p_value <= ALPHA / 2 else ABSTAIN)
        between += ALPHA / 2 < p_value <= ALPHA
    assert between


def test_invalid_scores_lower_the_top_class() -> None:
    full, holes = decide("two-sided", [700, 300, 0]), decide("two-sided", [500, 300, 0], invalid=200)
    assert holes.p_a[0] < full.p_a[0]
    assert holes.p_a[0] == ClopperPearson(ALPHA / 4).lower_at_fixed_n(np.array([500]), N)[0]


def test_only_proved_forms_are_called_sound() -> None:
    assert Multinomial(form="two-sided").sound
    assert Multinomial(form="one-sided").sound
    assert not Multinomial(form="paper").sound
    with pytest.raises(ArgumentError, match="must be one of two-sided, one-sided, paper"):
        Multinomial(form="exact")  # type: ignore[arg-type]


def test_largest_radius_is_reached_when_all_draws_agree() -> None:
    from ringfence.mechanisms import one_sided

    found = decide("one-sided", [N, 0, 0])
    reached = float(one_sided(found.p_a, found.p_b, 0.5)[0])
    assert reached == pytest.approx(
        Multinomial(ALPHA, N, "one-sided").best_case(Given(2, 0.5, neyman_pearson)), rel=1e-6
    )


def test_invalid_draws_are_rivals_of_every_class() -> None:
    given = Given(3, 0.5, neyman_pearson)
    test = Multinomial(0.01, n=100)
    spoiled = Tally({"votes": np.array([[52, 0, 0, 48]])}, np.array([100]))
    decisions = test.conclude(test.update(test.start(1, given), spoiled, given), given)
    assert decisions.prediction.tolist() == [ABSTAIN]

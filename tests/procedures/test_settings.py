"""Procedures declare themselves: settings, costs, what they reach; nobody else keeps a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson, renyi
from ringfence.procedures import (
    PROCEDURES,
    Anytime,
    EnsembleAfterSmoothing,
    Fixed,
    Given,
    Predict,
    Procedure,
    Sequential,
    Staged,
    declared,
    foreseen,
    procedure,
)
from ringfence.settings import check_settings
from ringfence.types import Tally

GIVEN = Given(2, 0.5, neyman_pearson)
every = pytest.mark.parametrize("name", PROCEDURES)


def made(name: str, **settings: Any) -> Procedure:
    needed = {one.name: 0.25 for one in declared(name) if one.required}
    return procedure(name, {**needed, **settings})


@every
def test_every_setting_says_what_it_means_and_checks_what_it_may_be(name: str) -> None:
    for one in declared(name):
        assert one.help.endswith(".")
        for wrong in ("a", [1], True, float("nan"), float("inf"), -1, 10**23, 10**400, {}):
            if (one.many and wrong == [1]) or (one.kind is float and wrong == 10**23):
                continue
            with pytest.raises(ArgumentError, match=f"{one.name}: must be|{one.name}: must lie"):
                made(name, **{one.name: wrong if not one.many else [wrong, wrong]})


@every
def test_a_config_gives_the_procedure_back(name: str) -> None:
    test = made(name)
    stored = {key: list(value) if isinstance(value, tuple) else value for key, value in test.settings().items()}
    assert procedure(name, stored) == test
    assert procedure(name.replace("-", "_"), stored) == test


def test_all_that_does_not_belong_is_refused_in_one_message() -> None:
    with pytest.raises(
        ArgumentError, match=r"stages, look: are no settings of the fixed procedure.*knows `alpha`, `n0`, `n`"
    ):
        procedure("fixed", {"stages": (10, 20), "look": 5, "n": 100, "beta": None})
    with pytest.raises(ArgumentError, match="radius: is needed by the staged procedure"):
        procedure("staged", {})
    with pytest.raises(ArgumentError, match="Did you mean staged"):
        declared("stagd")


def test_without_a_name_the_radius_decides() -> None:
    assert procedure(None, {"radius": 0.5}) == Sequential(0.5)
    assert procedure(None, {"radius": None, "n": 100}) == Fixed(n=100)
    assert procedure("fixed", {"radius": 0.5}, unless_known=("radius",)) == Fixed()


def test_a_setting_is_of_one_kind_in_all_procedures() -> None:
    """A command line has one option for all of them."""
    kinds: dict[str, set[tuple[type, bool]]] = {}
    for name in PROCEDURES:
        for one in declared(name):
            kinds.setdefault(one.name, set()).add((one.kind, one.many))
    assert [name for name, found in kinds.items() if len(found) > 1] == []


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n", "1000", 1000),
        ("n", "1e4", 10_000),
        ("n", "1.5", 1.5),
        ("n", "x", "x"),
        ("n", "123456789012345678", 123456789012345678),
        ("stages", "100, 1e3,", (100, 1000)),
        ("larger", "0.5,1", (0.5, 1.0)),
        ("radius", "1", 1.0),
    ],
)
def test_text_becomes_what_is_meant(name: str, text: str, value: Any) -> None:
    found = {one.name: one for kind in ("sequential", "staged") for one in declared(kind)}[name].parse(text)
    assert found == value
    assert type(found) is type(value)


def played(test: Procedure, p: float, runs: int) -> float:
    """Mean draws of simulated inputs."""
    rng, state, drawn = np.random.default_rng(1), test.start(runs, GIVEN), np.zeros(runs)
    while (wanted := test.request(state)).any():
        live = wanted > 0
        hits = np.where(state["stage"][live] == 0, wanted[live], rng.binomial(wanted[live], p))
        votes = np.stack([hits, wanted[live] - hits, np.zeros_like(hits)], 1)
        drawn += wanted
        state[live] = test.update(state[live], Tally({"votes": votes}, wanted[live]), GIVEN)
    return float(drawn.mean())


@pytest.mark.parametrize("p", [0.6, 0.66, 0.69, 0.72, 0.9])
@pytest.mark.parametrize(
    "test",
    [
        Staged(0.25, 0.02, beta=0.02, n0=10, stages=(50, 200, 1000)),
        Sequential(0.25, 0.02, n0=10, n=1000, look=50),
        Fixed(n0=10, n=50),
        Predict(n=40),
        Anytime(n0=10, n=300, look=50),
    ],
    ids=lambda test: test.name,
)
def test_expected_draws_are_those_of_simulated_inputs(test: Procedure, p: float) -> None:
    expected = test.expected_draws(p, GIVEN)
    assert expected == pytest.approx(played(test, p, 4000), rel=0.05)
    assert expected <= test.most_draws


def test_what_is_not_known_is_not_foretold() -> None:
    assert Anytime(tolerance=0.1).expected_draws(0.9, GIVEN) is None
    assert Sequential(0.25, larger=(0.5,)).expected_draws(0.9, GIVEN) is None


def test_what_is_foreseen_follows_the_mechanism() -> None:
    plain, other = (foreseen(Sequential(0.5), Given(2, 0.5, rule), 0.5) for rule in (neyman_pearson, renyi))
    assert plain["p_needed"] < other["p_needed"]
    assert plain["largest_radius"] > other["largest_radius"] > 0.5
    assert plain["most_draws"] == other["most_draws"] == 110_100
    assert foreseen(Fixed(n=100), GIVEN, 3.0)["reachable"] is False
    assert "p_needed" not in foreseen(Fixed(), GIVEN)


@every
def test_who_predicts_is_one_of_the_house_or_nobody(name: str) -> None:
    found = made(name).predictor(77)
    if "votes" in made(name).reads:
        assert found is not None
        assert found.predictor(5) is found
        assert not found.claims_radius
    else:
        assert found is None
    assert name != EnsembleAfterSmoothing.name or found is None


@every
def test_claims_are_told_in_the_norm_of_the_mechanism(name: str) -> None:
    assert ("linf norm" in made(name).claim("linf")) == made(name).claims_radius


@dataclass(frozen=True)
class Plain:
    """A class of one's own, whose fields say nothing of themselves."""

    n: int = 100
    most: int | None = None
    share: float = 0.5


@pytest.mark.parametrize("wrong", [{"n": 2.5}, {"n": True}, {"n": 2**63}, {"most": "many"}])
def test_plain_whole_numbers_of_ones_own_class_are_checked_as_declared_ones_are(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        check_settings(Plain(**wrong))
    check_settings(Plain(n=np.int64(7), most=None, share=2.5))  # type: ignore[arg-type]

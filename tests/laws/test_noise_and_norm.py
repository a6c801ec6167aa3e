"""Law: a mechanism is a proof about its own noise and norm, and every procedure decides by the mechanism of its run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import final

import numpy as np
import pytest
from scipy.special import expit, logit, ndtr
from simulate import most_failures

from ringfence.errors import ArgumentError
from ringfence.mechanisms import Mechanism, best_of, check_together, mechanisms_named, neyman_pearson, one_sided, renyi
from ringfence.procedures import (
    PROCEDURES,
    AcesCertify,
    AcesSequential,
    Anytime,
    EnsembleAfterSmoothing,
    Given,
    Procedure,
    Sequential,
    Staged,
    claims,
    procedure,
)
from ringfence.stats import FAMILIES, NoiseFamily, NoiseLaw, clopper_pearson_lower
from ringfence.types import ABSTAIN, FloatArray, Tally

SIGMA, RADIUS, ALPHA, RUNS = 0.5, 0.1, 0.02, 40_000
GAUSSIAN, LOGISTIC = NoiseLaw("gaussian", SIGMA), NoiseLaw("logistic", SIGMA)
OF_GAUSSIAN = mechanisms_named("all")
RULES = {one.name: one for one in OF_GAUSSIAN} | {"best_of": best_of(*OF_GAUSSIAN[1:])}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
KNOWN_RADIUS: dict[str, Procedure] = {
    "staged": Staged(RADIUS, ALPHA, beta=0.01, n0=10, stages=(100, 400)),
    "sequential": Sequential(RADIUS, ALPHA, beta=0.01, n0=10, n=1000, look=50),
    "aces-sequential": AcesSequential(RADIUS, ALPHA, beta=0.01, n0=10, n=1000, look=50),
}


@final
class AxisBound(Mechanism):
    """(Q(p_a) - Q(p_b)) / 2 in l1, for independent coordinates of one symmetric log-concave density."""

    name = "axis"
    families = frozenset({"logistic"})
    norm = "l1"

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return (law.quantile(p_a) - law.quantile(p_b)) / 2


@pytest.fixture
def logistic() -> Iterator[NoiseLaw]:
    """A family that is not in the house, as somebody would add one."""

    FAMILIES["logistic"] = NoiseFamily("logistic", "scale", expit, logit)
    yield LOGISTIC
    del FAMILIES["logistic"]


def follow(test: Procedure, given: Given, p: float, certain: bool, seed: int = 0) -> FloatArray:
    """Radii (RUNS,) of inputs whose class and selector have probability p; certain: the selector is sure."""
    rng = np.random.default_rng(seed)
    state = test.start(RUNS, given)
    while (wanted := test.request(state)).any():
        live = wanted > 0
        hits = rng.binomial(wanted[live], p)
        hits = np.where(state["stage"][live] == 0, wanted[live], hits)  # the first draws choose rightly
        none = np.zeros_like(hits)
        picks = wanted[live] if certain else hits
        bits = np.stack([wanted[live] - picks, picks, none], 1)
        cells = {"votes": np.stack([hits, wanted[live] - hits, none], 1), "bits": bits}
        state[live] = test.update(state[live], Tally(cells, wanted[live]), given)
    prediction, radius, _ = claims(test.conclude(state, given), given)
    return np.where(prediction == ABSTAIN, 0.0, radius)


# A proof serves its own noise --------------------------------------------------------------------------------------


@every_rule
def test_a_mechanism_is_refused_with_noise_it_has_no_proof_for(rule: Mechanism) -> None:
    for ask in (
        lambda: rule(0.9, 0.05, LOGISTIC),
        lambda: rule.between(0.9, 0.05, LOGISTIC),
        lambda: rule.probability_for(0.1, LOGISTIC),
        lambda: Given(2, LOGISTIC, rule),
        lambda: check_together((rule,), LOGISTIC),
    ):
        with pytest.raises(ArgumentError, match="is a proof about gaussian noise; got logistic noise of scale"):
            ask()


@every_rule
def test_a_plain_number_is_the_sigma_of_gaussian_noise(rule: Mechanism) -> None:
    assert rule(0.9, 0.05, SIGMA) == rule(0.9, 0.05, GAUSSIAN) > 0
    with pytest.raises(ArgumentError, match="axis is a proof about logistic noise"):
        AxisBound()(0.9, 0.05, SIGMA)


def test_best_of_serves_what_all_its_members_serve() -> None:
    class Both(AxisBound.__base__):  # type: ignore[misc, name-defined]
        """Proved for two families."""

        name, families = "both", frozenset({"gaussian", "logistic"})

        def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
            return p_a - p_b

    assert Both()(0.9, 0.05, LOGISTIC) > 0
    with pytest.raises(ArgumentError, match="proof about gaussian noise"):
        best_of(Both(), renyi)(0.9, 0.05, LOGISTIC)
    with pytest.raises(ArgumentError, match="one norm"):
        best_of(AxisBound(), renyi)


def test_a_mechanism_that_names_no_noise_serves_none() -> None:
    class Silent(Mechanism):
        """Written before mechanisms had to say what they are about."""

        name = "silent"

        def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
            return p_a

    with pytest.raises(ArgumentError, match="silent is a proof about no noise: its class names no families; got"):
        Silent()(0.9, 0.05, SIGMA)


def test_radii_of_different_norms_are_not_recorded_together() -> None:
    class Other(Mechanism):
        """Gaussian noise, another norm."""

        name, families, norm = "other", frozenset({"gaussian"}), "linf"

        def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
            return p_a - p_b

    check_together((neyman_pearson, renyi), GAUSSIAN)
    with pytest.raises(ArgumentError, match="one norm"):
        check_together((neyman_pearson, Other()), GAUSSIAN)


def test_two_mechanisms_of_one_name_are_not_recorded_together() -> None:
    class Loose(Mechanism):
        """Its radii stood for those of the one that decides."""

        name, families = "neyman_pearson", frozenset({"gaussian"})

        def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
            return np.full_like(p_a, 9.0)

    check_together(
        (neyman_pearson, renyi, neyman_pearson, best_of(renyi, one_sided), best_of(renyi, one_sided)), GAUSSIAN
    )
    with pytest.raises(ArgumentError, match="needs a name that no other of the run has; got two called neyman-pearson"):
        check_together((neyman_pearson, renyi, Loose()), GAUSSIAN)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.inf, np.nan, "a", None, 1e309])
def test_a_scale_is_a_positive_number(scale: float) -> None:
    with pytest.raises(ArgumentError, match="sigma: must be positive"):
        NoiseLaw("gaussian", scale)
    with pytest.raises(ArgumentError, match="noise_form: must be float or exact"):
        NoiseLaw("gaussian", 0.5, form="fixed-point")
    with pytest.raises(ArgumentError, match="lattice: is for exact noise alone"):
        NoiseLaw("gaussian", 0.5, lattice=255)
    with pytest.raises(ArgumentError, match="must be one of gaussian"):
        LOGISTIC.quantile(0.5)


def test_quantile_and_cdf_are_inverse(logistic: NoiseLaw) -> None:
    p = np.linspace(0.001, 0.999, 999)
    for law in (GAUSSIAN, logistic):
        np.testing.assert_allclose(law.cdf(law.quantile(p)), p, rtol=1e-12)
        np.testing.assert_allclose(law.quantile(p), -law.quantile(1 - p), atol=1e-12)  # symmetric
        np.testing.assert_allclose(law.quantile(p), law.unit.quantile(p) * SIGMA, rtol=1e-15)
    assert GAUSSIAN.cdf(SIGMA) == ndtr(1.0)
    assert GAUSSIAN.settings() == {"family": "gaussian", "sigma": 0.5, "form": "float", "lattice": None}


def test_another_family_needs_its_distribution_and_a_mechanism_and_nothing_else(logistic: NoiseLaw) -> None:
    """A half-space along an axis: its class has p = F(d) at distance d, and the l1 radius is that distance."""
    rule, distance = AxisBound(), np.linspace(0.01, 2.0, 200)
    p = logistic.cdf(distance)
    radius = rule(p, 1 - p, logistic)
    assert (radius <= distance).all()
    np.testing.assert_allclose(radius, distance, rtol=1e-8)
    p0 = rule.probability_for(distance, logistic)
    assert (p0 >= p).all()
    np.testing.assert_allclose(p0, p, atol=1e-8)
    given = Given(2, logistic, rule)
    for test in KNOWN_RADIUS.values():
        state = test.start(1, given)
        assert float(state["p0"][0]) == rule.probability_for(RADIUS, logistic) < 1


# Procedures decide by the mechanism of the run ---------------------------------------------------------------------


@every_rule
@pytest.mark.parametrize("name", KNOWN_RADIUS)
def test_a_known_radius_is_decided_by_the_mechanism_of_the_run(name: str, rule: Mechanism) -> None:
    test, given = KNOWN_RADIUS[name], Given(2, GAUSSIAN, rule)
    p0 = float(rule.probability_for(RADIUS, GAUSSIAN))
    assert float(test.start(1, given)["p0"][0]) == p0 >= ndtr(RADIUS / SIGMA)
    assert test.best_case(given) == pytest.approx(float(rule(*test.best_bounds, GAUSSIAN)))
    for certain in (False, True):
        certified = (follow(test, given, p0 - 1e-9, certain) == RADIUS).sum()
        assert certified <= most_failures(RUNS, ALPHA)
        assert certified > 0  # close to alpha: the test is about this p0, not about a larger one
    sure = (p0 + 1.5) / 2.5
    assert (follow(test, given, sure, certain=False) == RADIUS).mean() > 0.9


def test_what_one_mechanism_proves_another_does_not() -> None:
    """One stage of 400 draws: hits between what Neyman-Pearson and what Renyi needs."""
    test = Staged(RADIUS, ALPHA, n0=10, stages=(400,))
    needed = {rule.name: float(rule.probability_for(RADIUS, GAUSSIAN)) for rule in (one_sided, renyi)}
    lower = clopper_pearson_lower(np.arange(401), 400, ALPHA)
    hits = int(np.flatnonzero((lower >= needed["one_sided"]) & (lower < needed["renyi"]))[0])
    for rule, radius in ((one_sided, RADIUS), (neyman_pearson, RADIUS), (renyi, 0.0)):
        given = Given(2, GAUSSIAN, rule)
        state = test.start(1, given)
        for votes in ([10, 0, 0], [hits, 400 - hits, 0]):
            state = test.update(state, Tally({"votes": np.array([votes])}, np.array([sum(votes)])), given)
        assert claims(test.conclude(state, given), given)[1].tolist() == [radius]


@every_rule
def test_radii_of_aces_come_from_the_mechanism_of_the_run(rule: Mechanism) -> None:
    test, given = AcesCertify(ALPHA, n0=10, n=400), Given(2, GAUSSIAN, rule)
    radius = follow(test, given, 0.9, certain=True)
    lower = clopper_pearson_lower(np.arange(401), 400, ALPHA)
    by_hand = rule(lower, 1 - lower, GAUSSIAN) * (1 - 1e-9)
    assert np.isin(np.round(radius, 9), np.round(by_hand, 9)).all()
    assert radius.max() > 0


@every_rule
def test_anytime_stops_by_the_precision_of_that_radius(rule: Mechanism) -> None:
    test, given = Anytime(ALPHA, n0=10, n=3000, look=50, tolerance=0.3), Given(2, GAUSSIAN, rule)
    state = test.update(test.start(1, given), Tally({"votes": np.array([[10, 0, 0]])}, np.array([10])), given)
    while wanted := int(test.request(state)[0]):
        hits = round(0.9 * wanted)
        state = test.update(state, Tally({"votes": np.array([[hits, wanted - hits, 0]])}, np.array([wanted])), given)
    low, high = (float(rule(p, 1 - p, GAUSSIAN)) for p in (state["lower"][0], state["upper"][0]))
    assert state["drawn"][0] < 3000
    assert high - low <= 0.3 * high


def settings_of(name: str) -> dict[str, float]:
    return {"radius": RADIUS} if PROCEDURES[name].__dataclass_fields__.get("radius") else {}  # type: ignore[attr-defined]


@every_rule
@pytest.mark.parametrize("name", PROCEDURES)
def test_every_procedure_goes_with_every_mechanism_or_says_why_not(name: str, rule: Mechanism) -> None:
    test, given = procedure(name, settings_of(name)), Given(3, GAUSSIAN, rule)
    if name == EnsembleAfterSmoothing.name and not rule.joins:
        with pytest.raises(ArgumentError, match="no proof for bounds on members smoothed apart"):
            test.start(1, given)
        return
    assert test.request(test.start(1, given))[0] > 0
    assert (test.best_case(given) > 0) == test.claims_radius
    assert test.best_case(replace(given, norm_bound=2.0)) == pytest.approx(test.best_case(given) / 2)


def test_members_smoothed_apart_need_a_proof_for_them() -> None:
    assert neyman_pearson.between(0.9, 0.6, GAUSSIAN) > 0  # two functions: their bounds sum to more than 1
    assert neyman_pearson.between(0.6, 0.9, GAUSSIAN) == 0
    assert neyman_pearson.between(0.9, 0.1, GAUSSIAN) == pytest.approx(neyman_pearson(0.9, 0.1, GAUSSIAN), rel=1e-8)
    for rule in (one_sided, renyi):
        with pytest.raises(ArgumentError, match="no proof for bounds on members smoothed apart"):
            rule.between(0.9, 0.6, GAUSSIAN)


def test_a_radius_no_count_could_prove_is_refused_by_the_mechanism_of_the_run() -> None:
    """Renyi needs more than Neyman-Pearson: a radius between the two is out of its reach alone."""
    test = Staged(RADIUS, n0=10, stages=(1000,))
    best = {rule.name: test.best_case(Given(2, GAUSSIAN, rule)) for rule in (neyman_pearson, renyi)}
    assert best["renyi"] < best["neyman_pearson"]
    between = replace(test, radius=(best["renyi"] + best["neyman_pearson"]) / 2)
    between.start(1, Given(2, GAUSSIAN, neyman_pearson))
    with pytest.raises(ArgumentError, match="by renyi under gaussian noise of sigma"):
        between.start(1, Given(2, GAUSSIAN, renyi))

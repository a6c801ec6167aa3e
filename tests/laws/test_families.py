"""Law: Gaussian, uniform and Laplace noise, in both forms: certified up to the truth of half-spaces, never beyond."""

from __future__ import annotations

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from every_procedure import CASES, steady_tally
from simulate import false_claims, most_failures, simulate

from ringfence.errors import ArgumentError
from ringfence.laws import check_mechanism
from ringfence.mechanisms import (
    MECHANISMS,
    Mechanism,
    default_mechanism,
    mechanisms_named,
    neyman_pearson_l1,
    one_sided_for,
    one_sided_l1,
)
from ringfence.procedures import Anytime, Fixed, Given, Multinomial, Procedure, Sequential, Staged, TwoSided, claims
from ringfence.stats import FAMILIES, NoiseLaw
from ringfence.stats.lattice import TAILS, WORD, thresholds
from ringfence.types import ABSTAIN

SIGMA, ALPHA, RUNS = 0.5, 0.02, 40_000
NORMS = {"gaussian": "l2", "uniform": "l1", "laplace": "l1"}
LAWS = {f"{one}, {form}": NoiseLaw(one, SIGMA, form).over(784) for one in NORMS for form in ("float", "exact")}
every_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
every_family = pytest.mark.parametrize("family", NORMS)


# The distributions --------------------------------------------------------------------------------------------------


@every_family
def test_sigma_is_the_standard_deviation(family: str) -> None:
    p = (np.arange(2_000_000) + 0.5) / 2_000_000
    assert np.std(NoiseLaw(family, SIGMA).quantile(p)) == pytest.approx(SIGMA, rel=1e-4)
    assert FAMILIES[family].parameter == "sigma"


@every_family
def test_quantile_and_cdf_are_inverse_and_symmetric(family: str) -> None:
    law, p = NoiseLaw(family, SIGMA), np.linspace(0.001, 0.999, 999)
    np.testing.assert_allclose(law.cdf(law.quantile(p)), p, rtol=1e-12)
    np.testing.assert_allclose(law.quantile(p), -law.quantile(1 - p), atol=1e-12)
    assert law.cdf(-99.0) == 0 or family == "laplace"
    assert law.cdf(99.0) == 1


@every_family
def test_thresholds_are_floors_of_the_same_distribution_whatever_sigma(family: str) -> None:
    for sigma, lattice in ((0.5, 255), (0.123456789, 255), (1 / 3, 10)):
        table = thresholds(family, sigma, lattice)
        k = table.lowest + np.arange(len(table.values))
        law = NoiseLaw(family, sigma)
        np.testing.assert_allclose(table.values / WORD, law.cdf((k + 0.5) / lattice), atol=1e-12)
        ends = [0, *map(int, table.values), WORD]
        drawn = [Fraction(after - before, WORD) for before, after in itertools.pairwise(ends)]
        with mpmath.workprec(300):
            step = 1 / (mpmath.mpf(lattice) * mpmath.mpf(sigma))

            def tail(k: int, step: mpmath.mpf = step) -> mpmath.mpf:
                """P(K > k), k >= 0."""
                return TAILS[family]((k + mpmath.mpf(1) / 2) * step)

            total = mpmath.mpf(0)
            for place, p in enumerate(drawn):
                away = abs(table.lowest + place)
                true = tail(away - 1) - tail(away) if away else 1 - 2 * tail(0)
                total += abs(true - mpmath.mpf(p.numerator) / p.denominator)
            outside = 2 * tail(-table.lowest) if table.lowest else 0
            assert (total + outside) / 2 < table.eta / 2


def test_uniform_noise_on_a_lattice_ends_where_its_width_does() -> None:
    table = thresholds("uniform", SIGMA, 255)
    assert (table.lowest, table.highest) == (-221, 221)  # sqrt(3) / 2 is 220.8 steps, and 220.5 is the last edge
    assert len(thresholds("uniform", 0.001, 255).values) == 0  # narrower than a step: nothing is added


# The proofs ---------------------------------------------------------------------------------------------------------


@every_family
def test_the_noise_chooses_the_mechanism_and_its_norm(family: str) -> None:
    rule = default_mechanism(family)
    assert rule.norm == NORMS[family]
    assert rule.joins
    assert mechanisms_named(None, family) == (rule,)
    assert {one.norm for one in mechanisms_named("all", family)} == {NORMS[family]}
    assert one_sided_for(family) in mechanisms_named("all", family)


@pytest.mark.parametrize("rule", MECHANISMS.values(), ids=MECHANISMS)
@every_family
def test_a_mechanism_of_another_noise_or_norm_is_refused(rule: Mechanism, family: str) -> None:
    if rule.name.endswith("_l1") == (NORMS[family] == "l1"):
        assert rule(0.9, 0.05, NoiseLaw(family, SIGMA)) > 0
        return
    for ask in (
        lambda: rule(0.9, 0.05, NoiseLaw(family, SIGMA)),
        lambda: rule.probability_for(0.1, NoiseLaw(family, SIGMA)),
        lambda: Given(2, NoiseLaw(family, SIGMA), rule),
    ):
        wanted = f"{rule.spelled} is a proof about .* noise; got {family} noise of sigma"
        with pytest.raises(ArgumentError, match=wanted):
            ask()


@every_law
def test_no_mechanism_exceeds_the_distance_of_half_spaces(law: NoiseLaw) -> None:
    for rule in mechanisms_named("all", law.family):
        check_mechanism(rule, law)


def test_published_formulas() -> None:
    """Uniform w (p_a - p_b) on [-w, w]; Laplace -b ln 2(1 - p); at (.9, .01) 2.76 b, where Teng et al. have 2.25 b."""
    p_a, p_b = np.array([0.6, 0.9, 0.99]), np.array([0.4, 0.05, 0.01])
    width, scale = SIGMA * np.sqrt(3), SIGMA / np.sqrt(2)
    uniform, laplace = NoiseLaw("uniform", SIGMA), NoiseLaw("laplace", SIGMA)
    np.testing.assert_allclose(neyman_pearson_l1(p_a, p_b, uniform), width * (p_a - p_b), rtol=1e-8)
    np.testing.assert_allclose(one_sided_l1(p_a, p_b, uniform), width * (2 * p_a - 1), rtol=1e-8)
    np.testing.assert_allclose(one_sided_l1(p_a, p_b, laplace), -scale * np.log(2 * (1 - p_a)), rtol=1e-8)
    assert neyman_pearson_l1(0.9, 0.01, laplace) == pytest.approx(2.76 * scale, rel=1e-3)
    assert neyman_pearson_l1(0.45, 0.3, laplace) == pytest.approx(scale / 2 * np.log(0.45 / 0.3), rel=1e-8)
    assert neyman_pearson_l1(1.0, 0.0, uniform) <= width
    assert neyman_pearson_l1(1.0, 0.0, laplace) == np.inf


@every_law
def test_the_extremal_classifier_has_the_radius_and_no_more(law: NoiseLaw) -> None:
    """Class A where one coordinate is below a, class B where it is above b: shifted by r, A has F(a - r)."""
    a, b = (one.ravel() for one in np.meshgrid(np.linspace(-0.7, 0.8, 31), np.linspace(-0.7, 0.8, 31)))
    a, b = a[a <= b], b[a <= b]
    p_a, p_b = law.cdf(a), 1 - law.cdf(b)
    slack = law.slack or 0.0
    # The one-sided form allows for one rival with all the rest, which then begins where A ends.
    for rule, rival in ((default_mechanism(law.family), b), (one_sided_for(law.family), a)):
        radius, true = rule(p_a, p_b, law), (a + rival) / 2
        assert (radius <= np.maximum(true, 0)).all()
        np.testing.assert_allclose(radius, np.maximum(true, 0), atol=1e-8)
        beyond = np.maximum(true, 0) + 1e-6
        assert (law.cdf(a - beyond) < 1 - law.cdf(rival - beyond) + slack)[true > 0].all()


@every_family
def test_a_half_space_on_the_lattice_is_certified_up_to_its_edge(family: str) -> None:
    """Class A where X + K >= 0: at X = m its probability as drawn is exact; at X = -1, one step beyond, it is not A."""
    table, law = thresholds(family, SIGMA, 255), NoiseLaw(family, SIGMA, "exact").over(3072)
    for m in range(0, 200, 7):
        lost = int(table.values[-m - 1 - table.lowest])  # words of P(K <= -m - 1)
        for rule in (default_mechanism(family), one_sided_for(family)):
            radius = float(rule(1 - lost / WORD, lost / WORD, law))
            assert (m + 0.5) / 255 * (1 - 1e-6) <= radius <= (m + 0.5) / 255
    assert int(table.values[-1 - table.lowest]) < WORD // 2 < int(table.values[-table.lowest])


@every_law
def test_the_probability_for_a_radius_is_what_the_half_space_has(law: NoiseLaw) -> None:
    rule, radii = default_mechanism(law.family), np.array([1e-6, 0.01, 0.1, 0.5, 0.8])
    p0 = rule.probability_for(radii, law)
    assert (p0 >= law.cdf(radii)).all()
    np.testing.assert_allclose(p0, law.cdf(radii), atol=1e-8)
    assert (rule(p0, 1 - p0, law) >= radii).all()
    assert np.isinf(rule.probability_for(0.87, law)) == (law.family == "uniform")  # wider than the noise itself


def test_members_smoothed_apart_may_have_bounds_that_sum_to_more_than_one() -> None:
    for law in (NoiseLaw("uniform", SIGMA), NoiseLaw("laplace", SIGMA)):
        assert neyman_pearson_l1.between(0.9, 0.6, law) == pytest.approx(
            (law.quantile(0.9) - law.quantile(0.6)) / 2, rel=1e-6
        )
        assert neyman_pearson_l1.between(0.6, 0.9, law) == 0


@pytest.mark.parametrize("sigma", [0.25, 30.0, 1e3, 1e6])
def test_nearly_equal_bounds_of_members_are_rounded_down_at_every_scale(sigma: float) -> None:
    """Where they agree in most digits, the difference of their quantiles is rounded by as much as sigma is large."""
    p_b = np.random.default_rng(0).uniform(0.5, 1, 3000)
    p_a = np.minimum(p_b + np.geomspace(1e-16, 1e-7, 3000), 1.0)
    found = neyman_pearson_l1.between(p_a, p_b, NoiseLaw("uniform", sigma)).tolist()
    width = Fraction(sigma) * Fraction(1.7320508075688774)  # a little more than sqrt(3)
    truth = [width * (Fraction(a) - Fraction(b)) for a, b in zip(p_a.tolist(), p_b.tolist(), strict=True)]
    assert all(Fraction(radius) <= true for radius, true in zip(found, truth, strict=True))
    assert found[-1] > 0


def test_at_equal_sigma_uniform_noise_beats_the_gaussian_below_p_of_about_093() -> None:
    p = np.linspace(0.55, 0.999, 4000)
    radii = {one: default_mechanism(one)(p, 1 - p, NoiseLaw(one, 1.0)) for one in NORMS}
    ahead = p[radii["uniform"] > radii["gaussian"]]
    assert ahead.max() == pytest.approx(0.93, abs=0.01)
    assert (radii["laplace"] > radii["gaussian"])[p > 0.99].all()


# The procedures -----------------------------------------------------------------------------------------------------

AT_ALPHA: dict[str, Procedure] = {
    "fixed": Fixed(ALPHA, n0=10, n=200),
    "two-sided": TwoSided(ALPHA, n0=10, n=200),
    "multinomial": Multinomial(ALPHA, n=200),
    "staged": Staged(0.25, ALPHA, beta=0.01, n0=10, stages=(50, 200, 1000)),
    "sequential": Sequential(0.25, ALPHA, beta=0.01, n0=10, n=1000, look=50, larger=(0.3, 0.5)),
    "anytime": Anytime(ALPHA, n0=10, n=1000, look=20, tolerance=0.2),
}


@pytest.mark.parametrize("name", AT_ALPHA)
@every_law
def test_failure_rates_stay_below_alpha(name: str, law: NoiseLaw) -> None:
    p0 = float(default_mechanism(law.family).probability_for(0.25, law))
    for case in ((p0 - 1e-9, 1 - p0 + 1e-9), (0.45, 0.44, 0.11), (0.9, 0.07, 0.03)):
        p = np.array(case)
        prediction, radius = simulate(AT_ALPHA[name], p, RUNS, seed=len(name), noise=law)
        assert false_claims(prediction, radius, p, law).sum() <= most_failures(RUNS, ALPHA)
    assert (simulate(AT_ALPHA[name], np.array([0.99, 0.01]), 1000, 0, law)[1] > 0).mean() > 0.9


@pytest.mark.parametrize("name", [name for name, test in CASES.items() if test.claims_radius])
@every_law
def test_every_procedure_proves_its_radii_by_the_quantiles_of_the_noise(name: str, law: NoiseLaw) -> None:
    """Softmax means, ACES, after-smoothing and the rest: nothing is claimed beyond (Q(p_a) - Q(p_b)) / 2."""
    test, p = CASES[name], np.linspace(0.4, 0.999, 200)
    given = Given(3, law, default_mechanism(law.family), facts={"core": np.zeros(len(p), np.int64)})
    state = test.start(len(p), given)
    while (wanted := test.request(state)).any():
        live = wanted > 0
        state[live] = test.update(state[live], steady_tally(test, p[live], state["drawn"][live], wanted[live]), given)
    decided = test.conclude(state, given)
    prediction, radius, _ = claims(decided, given)
    claimed = (prediction != ABSTAIN) & (radius > 0)
    assert claimed.any()
    # ACES certifies with the better of two bounds on the selector, and a vote of members with the best of each.
    most = law.quantile(np.maximum(p, np.sqrt(p)) if "aces" in name or name == "after-smoothing" else p)
    assert (radius[claimed] <= np.maximum(most, 0)[claimed]).all()
    assert float(radius.max()) <= float(test.best_case(given)) * (1 + 1e-9)

"""Law: a lift of norm N is paid for by every procedure: it asks, stops and decides as with noise of sigma / N."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from every_procedure import CASES, tally
from scipy.special import ndtri

from ringfence.mechanisms import MECHANISMS, mechanisms_named, neyman_pearson
from ringfence.procedures import PROCEDURES, Decisions, Given, claims

SIGMA, NORM, ROWS = 0.5, 1.7, 300


def test_every_procedure_is_under_the_law() -> None:
    assert {procedure.name for procedure in CASES.values()} == set(PROCEDURES)


@pytest.mark.parametrize("name", CASES)
def test_a_lift_is_less_noise(name: str) -> None:
    """The same draws, once behind a lift and once with less noise: the same requests, answers and radii."""
    procedure, rng = CASES[name], np.random.default_rng(8)
    p = rng.uniform(0.45, 0.99, ROWS)
    core = {"core": rng.integers(0, 2, ROWS)}
    givens = Given(3, SIGMA, neyman_pearson, NORM, core), Given(3, SIGMA / NORM, neyman_pearson, 1.0, core)
    lifted, plain = (procedure.start(ROWS, given) for given in givens)
    for _ in range(200):
        wanted = procedure.request(plain)
        np.testing.assert_array_equal(procedure.request(lifted), wanted)
        live = wanted > 0
        if not live.any():
            break
        seen = tally(procedure, p[live], wanted[live], rng)
        lifted[live], plain[live] = (
            procedure.update(lifted[live], seen, givens[0]),
            procedure.update(plain[live], seen, givens[1]),
        )
    (behind, near, _), (alone, far, _) = (
        claims(procedure.conclude(state, given), given) for state, given in zip((lifted, plain), givens, strict=True)
    )
    np.testing.assert_array_equal(behind, alone)
    np.testing.assert_allclose(near, far, rtol=1e-8)
    assert (near <= far).all()
    assert len(set(behind.tolist())) > 1
    assert (far > 0).any() or "predict" in name


@pytest.mark.parametrize("name", [one.name for one in mechanisms_named("all")])
def test_dividing_by_the_norm_never_rounds_a_radius_up(name: str) -> None:
    """In rational numbers: what is claimed, times the norm, is at most the radius behind the lift."""
    rule, rng = MECHANISMS[name], np.random.default_rng(3)
    p_a = rng.uniform(0.6, 0.99, 50)
    decided = Decisions(np.zeros(50, np.int64), p_a, 1 - p_a)
    behind = [Fraction(radius) for radius in rule(p_a, 1 - p_a, SIGMA).tolist()]
    for norm in rng.uniform(1.0, 5.0, 40).tolist():
        claimed = claims(decided, Given(2, SIGMA, rule, norm))[1].tolist()
        assert all(Fraction(one) * Fraction(norm) <= most for one, most in zip(claimed, behind, strict=True))


def test_radii_that_procedures_compute_themselves_are_rounded_down_too() -> None:
    """ACES and ensembles after smoothing: at most half the gap between the quantiles, times sigma over the norm."""
    rng = np.random.default_rng(4)
    for norm in rng.uniform(1.0, 5.0, 40).tolist():
        for procedure in (CASES["aces"], CASES["after-smoothing"]):
            given = Given(3, SIGMA, neyman_pearson, norm)
            state, p = procedure.start(30, given), np.linspace(0.7, 0.99, 30)
            while (wanted := procedure.request(state)).any():
                state = procedure.update(state, tally(procedure, p, wanted, rng), given)
            found = procedure.conclude(state, given)
            assert found.radius is not None
            proved = found.radius > 0
            half = (ndtri(found.p_a[proved]) - ndtri(found.p_b[proved])) / 2
            for claimed, most in zip(found.radius[proved].tolist(), half.tolist(), strict=True):
                assert Fraction(claimed) * Fraction(norm) < Fraction(SIGMA) * Fraction(most)
            assert proved.any()

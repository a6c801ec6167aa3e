"""Law: a lift of norm N is paid for by every procedure: it asks, stops and decides as with noise of sigma / N."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri

from ringfence.mechanisms import MECHANISMS, neyman_pearson
from ringfence.procedures import (
    PROCEDURES,
    AcesCertify,
    AcesPredict,
    AcesSequential,
    Anytime,
    Decisions,
    EnsembleAfterSmoothing,
    Fixed,
    Given,
    Multinomial,
    Predict,
    Procedure,
    Sequential,
    Softmax,
    Staged,
    TwoSided,
    claims,
)
from ringfence.types import BINS, SCORE_EDGES, FloatArray, IntArray, Tally

SIGMA, NORM, ROWS, MEMBERS = 0.5, 1.7, 300, 2
CASES: dict[str, Procedure] = {
    "fixed": Fixed(n0=20, n=400),
    "two-sided": TwoSided(n0=20, n=400),
    "multinomial": Multinomial(n=400),
    "softmax": Softmax(n0=20, n=400, bound="hoeffding"),
    "predict": Predict(n=100),
    "staged": Staged(0.2, n0=20, stages=(100, 400, 2000)),
    "sequential": Sequential(0.2, n0=20, n=3000),
    "sequential, grid": Sequential(0.1, n0=20, n=3000, look=50, larger=(0.15, 0.2, 0.3, 0.4)),
    "anytime": Anytime(n0=20, n=3000),
    "anytime, grid": Anytime(n0=20, n=3000, radii=(0.05, 0.1, 0.2, 0.3, 0.4)),
    "after-smoothing": EnsembleAfterSmoothing(n0=20, n=400),
    "aces": AcesCertify(n0=20, n=400),
    "aces, two-sided": AcesCertify(n0=20, n=400, lower_share=0.5),
    "aces-predict": AcesPredict(n=100),
    "aces-sequential": AcesSequential(0.2, n0=20, n=3000),
}


def tally(procedure: Procedure, p: FloatArray, wanted: IntArray, rng: np.random.Generator) -> Tally:
    """What the procedure reads of draws that say class 0 with probability p (rows,), else one of two others."""
    shares = np.stack([p, 0.8 * (1 - p), 0.2 * (1 - p)], 1)
    votes = np.pad(rng.multinomial(wanted, shares), ((0, 0), (0, 1)))
    (needed,) = procedure.needs
    if needed == "selection":
        picks = rng.binomial(wanted, np.sqrt(p))
        return Tally({"votes": votes, "bits": np.stack([wanted - picks, picks, 0 * picks], 1)}, wanted)
    if needed == "member_votes":
        others = np.pad(rng.multinomial(wanted, shares), ((0, 0), (0, 1)))
        return Tally({"member_votes": np.concatenate([votes, others], 1)}, wanted)
    if needed == "scores":
        cells = np.zeros((len(p), 3 * BINS + 1), np.int64)
        bins = np.searchsorted(SCORE_EDGES[1:-1], shares, side="right") + np.arange(3) * BINS
        np.put_along_axis(cells, bins, np.broadcast_to(wanted[:, None], bins.shape), axis=1)
        return Tally({"scores": cells}, wanted)
    return Tally({"votes": votes}, wanted)


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


@pytest.mark.parametrize("name", MECHANISMS)
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

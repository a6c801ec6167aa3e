"""EnsembleAfterSmoothing: its formula, its failure rate, and the pass through the engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import beta, binom
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers import Members
from ringfence.data import Input
from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import EnsembleAfterSmoothing, Given, claims
from ringfence.sampling import ForwardPlan
from ringfence.types import ABSTAIN, FloatArray, IntArray, Tally

SIGMA, ALPHA = 0.5, 0.02


def steps(procedure: EnsembleAfterSmoothing, counts: list[IntArray], norm: float = 1.0):  # type: ignore[no-untyped-def]
    """(prediction, radius, decisions) from counts (rows, members, K+1) per stage."""
    given = Given(counts[0].shape[2] - 1, SIGMA, neyman_pearson, norm)
    state = procedure.start(len(counts[0]), given)
    for cells in counts:
        wanted = procedure.request(state)
        state = procedure.update(state, Tally({"member_votes": cells.reshape(len(cells), -1)}, wanted), given)
    assert not procedure.request(state).any()
    decisions = procedure.conclude(state, given)
    prediction, radius, _ = claims(decisions, given)
    return prediction, radius, decisions


def test_the_formula_of_methods_by_hand() -> None:
    """p_a = L of the chosen pair, p_b = the largest U of another class in ANY member, radius half the sum of both."""
    choice = np.array([[[6, 3, 1, 0], [8, 1, 1, 0], [2, 7, 1, 0]]])
    counts = np.array([[[700, 200, 100, 0], [900, 60, 40, 0], [420, 480, 100, 0]]])
    prediction, radius, decisions = steps(EnsembleAfterSmoothing(ALPHA, n0=10, n=1000), [choice, counts])
    p_a = beta.ppf(ALPHA / 2, 900, 101)
    p_b = beta.ppf(1 - ALPHA / 2, 481, 520)
    assert prediction.tolist() == [0]
    np.testing.assert_allclose(decisions.p_a, p_a, rtol=1e-6)
    np.testing.assert_allclose(decisions.p_b, p_b, rtol=1e-6)
    exact = SIGMA / 2 * (ndtri(p_a) - ndtri(p_b))
    assert radius[0] <= exact
    assert radius[0] == pytest.approx(exact, rel=1e-5)
    assert steps(EnsembleAfterSmoothing(ALPHA, n0=10, n=1000), [choice, counts], 2.0)[1][0] <= exact / 2


def test_a_rival_in_another_member_prevents_the_claim() -> None:
    choice = np.array([[[10, 0, 0], [0, 10, 0]]])
    counts = np.array([[[900, 100, 0], [80, 920, 0]]])
    prediction, radius, _ = steps(EnsembleAfterSmoothing(ALPHA, n0=10, n=1000), [choice, counts])
    assert (prediction[0], radius[0]) == (ABSTAIN, 0.0)


def test_invalid_scores_are_a_rival_of_every_class() -> None:
    choice = np.array([[[10, 0, 0], [3, 0, 7]]])
    counts = np.array([[[900, 100, 0], [40, 0, 960]]])
    assert steps(EnsembleAfterSmoothing(ALPHA, n0=10, n=1000), [choice, counts])[0][0] == ABSTAIN


CASES = {
    "one member ahead": [[0.8, 0.15, 0.05], [0.6, 0.3, 0.1]],
    "nearly tied across members": [[0.61, 0.39, 0.0], [0.4, 0.6, 0.0]],
    "tied": [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]],
    "all alike": [[0.45, 0.44, 0.11]] * 4,
    "many members": [[0.7 - 0.02 * i, 0.2 + 0.02 * i, 0.1] for i in range(6)],
}


@pytest.mark.parametrize("case", CASES)
def test_failure_rate_is_at_most_alpha(case: str) -> None:
    """200,000 inputs; members of one input share draws, here as dependent as they can be: one uniform decides all."""
    p = np.array(CASES[case])
    runs, procedure = 200_000, EnsembleAfterSmoothing(ALPHA, n0=10, n=100)
    rng = np.random.default_rng(len(case))
    counts = [_coupled(rng, p, runs, n) for n in (procedure.n0, procedure.n)]
    prediction, radius, _ = steps(procedure, counts)
    best = p.max(0)
    rivals = np.array([np.delete(p, c, axis=1).max() for c in range(p.shape[1])])
    true = SIGMA / 2 * (ndtri(best) - ndtri(np.maximum(rivals, 1e-300)))
    claimed = prediction != ABSTAIN
    false = claimed & (radius > np.where(claimed, true[prediction], 0.0))
    assert false.sum() <= binom.isf(1e-7, runs, ALPHA)
    assert claimed.any() or case in ("nearly tied across members", "tied", "all alike")


def _coupled(rng: np.random.Generator, p: FloatArray, runs: int, n: int) -> IntArray:
    """Counts (runs, members, K+1) where draw i of all members comes from one uniform."""
    members, classes = p.shape
    edges = p.cumsum(1)
    cuts = np.unique(np.append(edges.ravel(), 1.0).clip(max=1.0))
    mass = np.diff(np.append(0.0, cuts))
    cells = rng.multinomial(n, mass / mass.sum(), size=runs)  # how many uniforms fell between two cuts
    middle = cuts - mass / 2
    counts = np.zeros((runs, members, classes + 1), np.int64)
    for member in range(members):
        which = np.minimum(np.searchsorted(edges[member], middle), classes - 1)
        for place, label in enumerate(which):
            counts[:, member, label] += cells[:, place]
    return counts


class Line(nn.Module):
    """Class 1 above the edge, on the first coordinate."""

    def __init__(self, edge: float) -> None:
        super().__init__()
        self.edge = edge

    def forward(self, x: Tensor) -> Tensor:
        return torch.eye(2)[(x.flatten(1)[:, 0] > self.edge).long()]


def test_through_the_engine_the_radius_stays_below_the_true_one() -> None:
    """Two half-planes: at distance d1, d2 on the same side the ensemble's true radius is (max + min)/2."""
    members = Members([Line(0.0), Line(0.4)])
    x = torch.tensor([1.0, 0.0, 0.0])
    record = next(
        iter(
            rf.certify(
                members,
                [Input(3, x, None, "")],
                noise=rf.Gaussian(SIGMA),
                procedure=EnsembleAfterSmoothing(0.001, n0=50, n=20_000),
                execution=rf.Execution(device="cpu", plan=ForwardPlan(500)),
            )
        )
    )
    assert record.prediction == 1
    assert record.forwards == 2 * record.draws == 2 * 20_050
    assert 0.75 < record.radius < (1.0 + 0.6) / 2


def test_bad_settings_are_refused() -> None:
    for settings in ({"alpha": 0.0}, {"n0": 0}, {"n": -1}):
        with pytest.raises(ArgumentError):
            EnsembleAfterSmoothing(**settings)  # type: ignore[arg-type]
    assert sum(EnsembleAfterSmoothing(ALPHA).spent.values()) <= ALPHA * (1 + 1e-12)

"""Law: certificates from softmax means and from shared draws are false with probability at most alpha."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri
from simulate import SIGMA, most_failures

from ringfence.mechanisms import MECHANISMS, Mechanism, mechanisms_named, neyman_pearson
from ringfence.procedures import Given, Multinomial, Procedure, Softmax, claims
from ringfence.types import ABSTAIN, BINS, SCORE_EDGES, BoolArray, FloatArray, Tally

ALPHA = 0.05
RUNS = 20_000

SOFTMAX: dict[str, Procedure] = {
    bound: Softmax(ALPHA, n0=10, n=100, bound=bound)  # type: ignore[arg-type]
    for bound in ("betting", "bernstein", "hoeffding")
}

# Draws return one of a few score vectors (rows of scores, summing to 1) with these weights.
DRAWS = {
    "votes in disguise": ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [0.5, 0.49, 0.01]),
    "rare collapse": ([[0.95, 0.04, 0.01], [0.0, 1.0, 0.0]], [0.97, 0.03]),
    "nearly tied means": ([[0.6, 0.4, 0.0], [0.4, 0.6, 0.0], [0.2, 0.3, 0.5]], [0.45, 0.45, 0.1]),
    "rare triumph": ([[0.3, 0.7, 0.0], [1.0, 0.0, 0.0]], [0.9, 0.1]),
}


def simulate_scores(procedure: Procedure, scores: FloatArray, weights: FloatArray, runs: int, seed: int):  # type: ignore[no-untyped-def]
    """Predictions and radii per mechanism (runs,) of inputs whose draws return these score vectors."""
    rng, classes = np.random.default_rng(seed), scores.shape[1]
    cell = np.searchsorted(SCORE_EDGES[1:-1], scores, side="right") + np.arange(classes) * BINS
    given = Given(classes, SIGMA, neyman_pearson)
    state = procedure.start(runs, given)
    for _ in range(2):
        wanted = procedure.request(state)
        if not wanted.any():
            break
        kinds = rng.multinomial(wanted, weights)
        cells = np.zeros((runs, classes * BINS + 1), np.int64)
        for kind in range(len(weights)):
            np.add.at(cells, (slice(None), cell[kind]), kinds[:, kind, None])
        state = procedure.update(state, Tally({"scores": cells}, wanted), given)
    prediction, _, radii = claims(procedure.conclude(state, given), given, tuple(mechanisms_named("all")))
    return prediction, radii


def false_soft_claims(prediction, radius, means: FloatArray) -> BoolArray:  # type: ignore[no-untyped-def]
    truth = np.array([SIGMA / 2 * (ndtri(means[c]) - ndtri(np.delete(means, c).max())) for c in range(len(means))])
    claimed = (prediction != ABSTAIN) & (radius > 0)
    return np.asarray(claimed & (radius > truth[prediction]))


@pytest.mark.parametrize("case", DRAWS)
@pytest.mark.parametrize("bound", SOFTMAX)
def test_softmax_failure_rate_is_at_most_alpha_for_every_mechanism(bound: str, case: str) -> None:
    scores, weights = np.array(DRAWS[case][0], float), np.array(DRAWS[case][1])
    runs = RUNS // 10 if bound == "betting" else RUNS // 4
    prediction, radii = simulate_scores(SOFTMAX[bound], scores, weights, runs, seed=3)
    for radius in radii.values():
        assert false_soft_claims(prediction, radius, weights @ scores).sum() <= most_failures(runs, ALPHA)


@pytest.mark.parametrize("form", ["two-sided", "one-sided"])
@pytest.mark.parametrize("classes", [3, 10, 1000])
@pytest.mark.parametrize("top", [0.3, 0.5, 0.9])
def test_multinomial_failure_rate_is_at_most_alpha_for_every_mechanism(form: str, classes: int, top: float) -> None:
    p = np.full(classes, 0.0)
    p[0], p[1] = top, min(top, 1 - top) - 1e-9
    p[2:] = (1 - p[0] - p[1]) / (classes - 2)
    runs = 200_000 if classes < 100 else 5_000
    rng, given = np.random.default_rng(int(classes + 100 * top)), Given(classes, SIGMA, neyman_pearson)
    procedure = Multinomial(ALPHA, n=60, form=form)  # type: ignore[arg-type]
    state = procedure.start(runs, given)
    votes = rng.multinomial(60, p, size=runs)
    cells = {"votes": np.concatenate([votes, np.zeros((runs, 1), np.int64)], axis=1)}
    state = procedure.update(state, Tally(cells, np.full(runs, 60)), given)
    chosen: tuple[Mechanism, ...] = (MECHANISMS["neyman_pearson"], MECHANISMS["one_sided"])
    prediction, _, radii = claims(procedure.conclude(state, given), given, chosen)
    for radius in radii.values():
        assert false_soft_claims(prediction, radius, p).sum() <= most_failures(runs, ALPHA)


def test_invalid_scores_count_against_every_class() -> None:
    procedure = Softmax(ALPHA, n0=10, n=100)
    given = Given(3, SIGMA, neyman_pearson)
    cells = np.zeros((1, 3 * BINS + 1), np.int64)
    cells[0, BINS - 1], cells[0, BINS], cells[0, 2 * BINS] = 50, 50, 50
    cells[0, -1] = 3 * 50  # half of the draws gave no scores
    state = procedure.start(1, given)
    state = procedure.update(state, Tally({"scores": cells // 10}, np.array([10])), given)
    decisions = procedure.conclude(procedure.update(state, Tally({"scores": cells}, np.array([100])), given), given)
    assert decisions.p_a[0] < 0.5
    assert decisions.p_b[0] == pytest.approx(1 - decisions.p_a[0])

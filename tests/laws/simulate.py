"""Run a procedure on counts drawn from known class probabilities, thousands of inputs at once."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Procedure, claims
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray, Tally

SIGMA = 0.5
FALSE_ALARM = 1e-6 / 400
"""Each law's own share of one false alarm in a million over the whole suite."""


def simulate(
    procedure: Procedure, p: FloatArray, runs: int, seed: int, most_steps: int = 200
) -> tuple[IntArray, FloatArray]:
    """Predictions and radii (runs,) of independent inputs whose draws vote with probabilities p (K,)."""
    rng = np.random.default_rng(seed)
    given = Given(len(p), SIGMA, neyman_pearson)
    state = procedure.start(runs, given)
    for _ in range(most_steps):
        wanted = procedure.request(state)
        live = wanted > 0
        if not live.any():
            break
        votes = rng.multinomial(wanted[live], p)
        cells = {"votes": np.concatenate([votes, np.zeros((len(votes), 1), np.int64)], axis=1)}
        state[live] = procedure.update(state[live], Tally(cells, wanted[live]), given)
    prediction, radius, _ = claims(procedure.conclude(state, given), given)
    return prediction, radius


def true_radius(p: FloatArray) -> FloatArray:
    """For each class (K,) the radius that a classifier with probabilities p really has in the worst case."""
    return np.array([SIGMA / 2 * (ndtri(p[c]) - ndtri(np.delete(p, c).max())) for c in range(len(p))])


def false_claims(prediction: IntArray, radius: FloatArray, p: FloatArray) -> BoolArray:
    """Where something is claimed that does not hold: a class that is not the top one, or too large a radius."""
    claimed = prediction != ABSTAIN
    truth = np.where(claimed, true_radius(p)[prediction], 0.0)
    return np.asarray(claimed & ((truth < 0) | (radius > truth)))


def most_failures(runs: int, alpha: float) -> int:
    """More failures than this would be seen with probability FALSE_ALARM if the rate were alpha."""
    return int(binom.isf(FALSE_ALARM, runs, alpha))

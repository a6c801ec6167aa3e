"""Law: who asks a server about one input at many alphas up to a, and many radii, hears something false with
probability at most a, because all answers rest on the same draws."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from simulate import SIGMA, false_claims, most_failures

from ringfence.mechanisms import default_mechanism
from ringfence.procedures import Anytime, Given, claims
from ringfence.stats import as_law
from ringfence.types import Tally

RUNS, MOST, N0 = 20_000, 0.02, 10
ALPHAS = [MOST * share for share in (1.0, 0.999, 0.9, 0.5, 0.1)]
RADII: list[tuple[float, ...]] = [(), (0.25,), (0.3,)]
PROBABILITIES = {
    "nearly tied": (0.5 - 1e-9, 0.5 + 1e-9),
    "just short of a radius": (ndtr(0.5) - 1e-9, 1 - ndtr(0.5) + 1e-9),
    "clear": (0.9, 0.07, 0.03),
}
Votes = NDArray[np.int64]


def drawn(test: Anytime, p: NDArray[np.float64], seed: int) -> list[Votes]:
    """Votes (RUNS, K) of the draws that choose the class and of those up to each look."""
    rng = np.random.default_rng(seed)
    given = Given(len(p), as_law(SIGMA), default_mechanism("gaussian"))
    state, votes = test.start(1, given), []
    while (wanted := int(test.request(state)[0])) > 0:
        votes.append(rng.multinomial(wanted, p, RUNS))
        one = np.append(votes[-1][:1], [[0]], axis=1)
        state = test.update(state, Tally({"votes": one}, np.array([wanted])), given)
    return votes


def false_answers(test: Anytime, p: NDArray[np.float64], votes: list[Votes]) -> NDArray[np.bool_]:
    """Whether the answer from these draws is false (RUNS,)."""
    given = Given(len(p), as_law(SIGMA), default_mechanism("gaussian"))
    state = test.start(RUNS, given)
    for told in votes:
        live = test.request(state) > 0
        cells = {"votes": np.append(told, np.zeros((RUNS, 1), np.int64), axis=1)[live]}
        state[live] = test.update(state[live], Tally(cells, told.sum(1)[live]), given)
    prediction, radius, _ = claims(test.conclude(state, given), given)
    return false_claims(prediction, radius, p)


@pytest.mark.parametrize("case", PROBABILITIES)
def test_any_answer_is_false_with_probability_of_the_largest_alpha(case: str) -> None:
    p = np.array(PROBABILITIES[case])
    votes = drawn(Anytime(MOST, n0=N0, n=2000, look=20), p, seed=len(case))
    tests = [Anytime(alpha, n0=N0, n=2000, look=20, radii=radii) for alpha, radii in product(ALPHAS, RADII)]
    false = np.stack([false_answers(one, p, votes) for one in tests])
    assert false.any(0).sum() <= most_failures(RUNS, MOST)


def test_with_draws_of_their_own_they_would_not_hold_together() -> None:
    """The law can fail: so it did as a server drew anew for every alpha."""
    p = np.array(PROBABILITIES["nearly tied"])
    tests = [Anytime(alpha, n0=N0, n=2000, look=20) for alpha in np.linspace(0.9, 1, 10) * MOST]
    false = np.stack([false_answers(one, p, drawn(one, p, seed)) for seed, one in enumerate(tests)])
    assert false.any(0).sum() > most_failures(RUNS, MOST)

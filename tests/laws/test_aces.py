"""Law: what ACES claims on a linear toy with closed-form probabilities is false with probability at most alpha.

The toy lives on a line. The certification network says class 1 right of 0; the selector says 1 (certify) where the
network is confident, |x| >= edge; the core says the same class everywhere. All of it is known exactly: the noise
falls into four intervals with normal probabilities, and F(x + d) is a function of the position alone.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from dishonest import Dishonest
from scipy.special import entr, ndtr, ndtri
from scipy.stats import binom
from simulate import FALSE_ALARM, SIGMA, most_failures
from torch import Tensor, nn

import ringfence as rf
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import AcesCertify, AcesPredict, AcesSequential, Decisions, Given, Procedure, State, claims
from ringfence.sampling import ForwardPlan
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray, Tally

RUNS = 50_000
ALPHA, LARGE = 0.02, 0.5
EDGE = 0.6
STRAIGHT = 1.5
"""So far out that the other side of the selector has no probability: the selector is linear, its radius exact."""
MISS = 2e-5
"""By how much a radius is missed, and twice the step at which true radii are searched."""

PROCEDURES: dict[str, Procedure] = {
    "sharp": AcesCertify(ALPHA, n0=10, n=200),
    "paper": AcesCertify(ALPHA, n0=10, n=200, form="paper"),
    "one draw chooses": AcesCertify(ALPHA, n0=1, n=60),
    "two-sided": AcesCertify(ALPHA, n0=10, n=200, lower_share=0.5),
    "predict": AcesPredict(ALPHA, n=100),
    "predict, paper": AcesPredict(ALPHA, n=100, form="paper"),
    "sequential": AcesSequential(0.1, ALPHA, beta=0.01, n0=10, n=1000, look=50),
    "sequential at 0": AcesSequential(0.0, ALPHA, beta=0.01, n0=5, n=600, look=20),
    "sequential, paper": AcesSequential(0.1, ALPHA, beta=0.01, n0=10, n=1000, look=50, form="paper"),
    "sequential, wide": AcesSequential(0.3, ALPHA, beta=1e-6, n0=10, n=600, look=50),
}


def selected(x: float | FloatArray, edge: float) -> FloatArray:
    """P(selector = 1) = P(|x + e| >= edge)."""
    return np.asarray(ndtr((np.asarray(x) - edge) / SIGMA) + ndtr((-np.asarray(x) - edge) / SIGMA))


def border(edge: float) -> float:
    """Where the smoothed selector changes its mind, right of 0."""
    grid = np.linspace(0, 3, 3_000_001)
    return float(grid[np.argmax(selected(grid, edge) > 0.5)])


BORDER, STRAIGHT_BORDER = border(EDGE), border(STRAIGHT)
PLACES: dict[str, tuple[float, float]] = {
    "selection all but tied, from inside": (EDGE, BORDER - 1e-6),
    "selection all but tied, from outside": (EDGE, BORDER + 1e-6),
    "class all but tied, not selected": (EDGE, 1e-6),
    "not selected, class clear": (EDGE, 0.6 * BORDER),
    "far out": (EDGE, 4 * BORDER),
    # Here the bound on the selector's radius is tight: its probability just misses Phi(r / sigma).
    "the radius 0.1 just missed": (STRAIGHT, STRAIGHT_BORDER + 0.1 - MISS),
    "the radius 0.3 just missed": (STRAIGHT, STRAIGHT_BORDER + 0.3 - MISS),
    "straight, all but tied": (STRAIGHT, STRAIGHT_BORDER + 1e-6),
}
BOTH_TIED = (SIGMA * float(ndtri(0.75)) - 1e-9, 1e-9)
"""Selector and class are all but tied, independently of each other; in truth it is selected and class 1."""


def simulate(
    procedure: Procedure,
    place: tuple[float, float],
    core: int,
    runs: int,
    seed: int,
    choice: tuple[int, int] | None = None,
) -> tuple[IntArray, FloatArray]:
    """Predictions and radii (runs,) of independent runs at a place (edge, x); choice: the bit and the class that the
    first draws are made to choose."""
    edge, x = place
    edges = ndtr((np.array([-np.inf, -edge, 0.0, edge, np.inf]) - x) / SIGMA)
    rng, given = np.random.default_rng(seed), Given(2, SIGMA, neyman_pearson, facts={"core": np.full(runs, core)})
    state = procedure.start(runs, given)
    for _ in range(200):
        wanted = procedure.request(state)
        live = wanted > 0
        if not live.any():
            break
        left, low, high, right = rng.multinomial(wanted[live], np.diff(edges)).T
        if choice is not None:
            sides = np.zeros((4, len(left)), np.int64)
            sides[{(1, 0): 0, (0, 0): 1, (0, 1): 2, (1, 1): 3}[choice]] = wanted[live]
            (left, low, high, right), choice = sides, None
        none = np.zeros_like(left)
        cells = {
            "votes": np.stack([left + low, high + right, none], 1),
            "bits": np.stack([low + high, left + right, none], 1),
        }
        state[live] = procedure.update(state[live], Tally(cells, wanted[live]), given)
    prediction, radius, _ = claims(procedure.conclude(state, given), given)
    return prediction, radius


def true_answer(x: FloatArray, edge: float, core: int) -> IntArray:
    """F at positions x."""
    return np.where(selected(x, edge) > 0.5, x > 0, core).astype(np.int64)


@cache
def true_radius(place: tuple[float, float], core: int, answer: int) -> float:
    """How far F gives this answer around a place (edge, x); below 0 where it does not even there."""
    edge, x = place
    steps = np.arange(0.0, 3.0, MISS / 2)
    holds = (true_answer(x + steps, edge, core) == answer) & (true_answer(x - steps, edge, core) == answer)
    return -1.0 if not holds[0] else float(steps[np.argmin(holds)]) if not holds.all() else np.inf


def false_claims(prediction: IntArray, radius: FloatArray, place: tuple[float, float], core: int) -> BoolArray:
    """Where the claimed class is not F's somewhere within the claimed radius."""
    claimed = prediction != ABSTAIN
    reach = np.where(prediction == 1, true_radius(place, core, 1), true_radius(place, core, 0))
    return np.asarray(claimed & (radius > reach))


@pytest.mark.parametrize("name", PROCEDURES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("core", [0, 1])
def test_failure_rate_is_at_most_alpha(name: str, place: str, core: int) -> None:
    at = PLACES[place]
    prediction, radius = simulate(PROCEDURES[name], at, core, RUNS, seed=len(name) * 100 + len(place) + core)
    assert false_claims(prediction, radius, at, core).sum() <= most_failures(RUNS, ALPHA)


@pytest.mark.parametrize("name", PROCEDURES)
def test_failure_rate_is_at_most_a_large_alpha(name: str) -> None:
    """Where half may fail, what is given away hides little."""
    procedure = replace(PROCEDURES[name], alpha=LARGE)
    for place, core in itertools.product(PLACES, (0, 1)):
        prediction, radius = simulate(procedure, PLACES[place], core, RUNS // 20, seed=len(name) * 100 + len(place))
        assert false_claims(prediction, radius, PLACES[place], core).sum() <= most_failures(RUNS // 20, LARGE)


@pytest.mark.parametrize("name", [name for name in PROCEDURES if "predict" not in name])
@pytest.mark.parametrize("bit", [0, 1])
@pytest.mark.parametrize("top", [0, 1])
@pytest.mark.parametrize("core", [0, 1])
def test_failure_rate_is_at_most_alpha_whatever_the_first_draws_chose(name: str, bit: int, top: int, core: int) -> None:
    """Those draws are used for nothing else, so that the guarantee holds given any choice, also the worst."""
    prediction, radius = simulate(PROCEDURES[name], BOTH_TIED, core, RUNS // 2, seed=7, choice=(bit, top))
    assert false_claims(prediction, radius, BOTH_TIED, core).sum() <= most_failures(RUNS // 2, ALPHA)


def test_spent_never_exceeds_alpha() -> None:
    for procedure in PROCEDURES.values():
        assert 0 < sum(procedure.spent.values()) <= ALPHA * (1 + 1e-12)


def test_something_is_claimed() -> None:
    """An ACES that always abstained would pass the law."""
    for name, procedure in PROCEDURES.items():
        prediction, radius = simulate(procedure, PLACES["far out"], 0, 2000, seed=1)
        assert (prediction == 1).mean() > 0.9, name
        if "predict" not in name and "at 0" not in name:
            assert (radius > 0).mean() > 0.9, name
        prediction, radius = simulate(procedure, (EDGE, 0.01), 0, 2000, seed=2)
        assert (prediction == 0).mean() > 0.5, name
        assert (radius == 0).all() or name == "one draw chooses"


def test_sharp_is_at_least_the_papers_accounting() -> None:
    for at in PLACES.values():
        for core in (0, 1):
            sharp = simulate(PROCEDURES["sharp"], at, core, 2000, seed=3)
            paper = simulate(PROCEDURES["paper"], at, core, 2000, seed=3)
            assert (sharp[1] >= paper[1]).all()
            assert ((sharp[0] == paper[0]) | (paper[0] == ABSTAIN)).all()


class OrInsteadOfAnd(Dishonest):
    """Algorithm 4 as printed: the core's class whenever more draws voted for it, without any test."""

    honest = AcesPredict(ALPHA, n=100)

    def conclude(self, state: State, given: Given) -> Decisions:
        found, more = self.honest.conclude(state, given), state["bits"][:, 0] > state["bits"][:, 1]
        return replace(found, prediction=np.where(more, state["core"], found.prediction))


class AlphaForEitherBound(Dishonest):
    """Where bit or class alone leads to the claim, both bounds at alpha: ACES shares there what it is given."""

    honest = AcesCertify(2 * ALPHA, n0=10, n=200)


class AlphaForEitherTest(Dishonest):
    """The same with sequential tests."""

    honest = AcesSequential(0.1, 2 * ALPHA, beta=0.01, n0=10, n=1000, look=50)


@pytest.mark.parametrize(
    ("wrong", "place", "core", "choice"),
    [
        (OrInsteadOfAnd, PLACES["selection all but tied, from outside"], 0, None),
        (AlphaForEitherBound, BOTH_TIED, 0, (0, 0)),
        (AlphaForEitherTest, BOTH_TIED, 0, (0, 0)),
    ],
)
def test_the_law_catches(
    wrong: type[Dishonest], place: tuple[float, float], core: int, choice: tuple[int, int] | None
) -> None:
    prediction, radius = simulate(wrong(ALPHA), place, core, RUNS, seed=4, choice=choice)
    assert false_claims(prediction, radius, place, core).sum() > most_failures(RUNS, ALPHA)


class Line(nn.Module):
    """Logits (-4x, 4x): the share of class 1 is 1/(1 + exp(-8x)), so the entropy falls with |x|."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([-4 * x, 4 * x], 1)


def test_the_toy_through_the_engine() -> None:
    """The same toy as networks: its selector's counts have the closed-form probability, its claims keep the law."""
    share = 1 / (1 + np.exp(-8 * EDGE))
    theta = float((entr(share) + entr(1 - share)) / np.log(2))
    aces, place, runs, n = rf.Aces(Line(), rf.EntropySelector(theta), Line()), BORDER + 0.1, 300, 200
    inputs = torch.full((runs, 1), place)
    execution = rf.Execution(device="cpu", plan=ForwardPlan(500))
    procedure = AcesCertify(ALPHA, n0=10, n=n)
    records = list(rf.certify(aces, inputs, noise=rf.Gaussian(SIGMA), procedure=procedure, execution=execution))
    bits = sum(int(record.stages[1].cells["bits"][1]) for record in records)
    low, high = binom.ppf([FALSE_ALARM, 1 - FALSE_ALARM], runs * n, selected(place, EDGE))
    assert low <= bits <= high
    prediction = np.array([record.prediction for record in records])
    radius = np.array([record.radius for record in records])
    assert false_claims(prediction, radius, (EDGE, place), core=1).sum() <= most_failures(runs, ALPHA)
    assert {record.facts["core"] for record in records} == {1}
    assert (radius > 0).any()

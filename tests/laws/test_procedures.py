"""Law: every procedure's certificates are false with probability at most alpha, whatever the probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dishonest import Dishonest
from scipy.special import ndtr
from simulate import SIGMA, false_claims, most_failures, simulate

from ringfence.procedures import (
    PROCEDURES,
    Anytime,
    Decisions,
    Fixed,
    Given,
    Multinomial,
    Predict,
    Procedure,
    Sequential,
    Staged,
    State,
    TwoSided,
)
from ringfence.stats import clopper_pearson_lower
from ringfence.types import Tally

RUNS = 50_000
"""At which the dishonest below are caught; the slow suite looks closer."""
CLOSER = 4 * RUNS
ALPHA, LARGE = 0.02, 0.5
RADIUS = 0.25
P0 = float(ndtr(RADIUS / SIGMA))

PROCEDURES_AT_ALPHA: dict[str, Procedure] = {
    "fixed": Fixed(ALPHA, n0=10, n=200),
    "fixed, n0=1": Fixed(ALPHA, n0=1, n=50),
    "two-sided": TwoSided(ALPHA, n0=10, n=200),
    "two-sided, uneven": TwoSided(ALPHA, n0=10, n=100, lower_share=0.9),
    "multinomial": Multinomial(ALPHA, n=200),
    "multinomial, one-sided": Multinomial(ALPHA, n=200, form="one-sided"),
    "predict": Predict(ALPHA, n=100),
    "predict, few": Predict(ALPHA, n=15),
    "staged": Staged(RADIUS, ALPHA, beta=0.01, n0=10, stages=(50, 200, 1000)),
    "staged, one stage": Staged(RADIUS, ALPHA, beta=0.01, n0=10, stages=(100,)),
    "sequential": Sequential(RADIUS, ALPHA, beta=0.01, n0=10, n=2000, look=20),
    "sequential, no giving up": Sequential(RADIUS, ALPHA, beta=1e-9, n0=10, n=1000, look=50),
    "sequential, grid": Sequential(RADIUS, ALPHA, beta=0.01, n0=10, n=1000, look=50, larger=(0.3, 0.5, 0.9)),
    "anytime": Anytime(ALPHA, n0=10, n=1000, look=20),
    "anytime, tolerance": Anytime(ALPHA, n0=10, n=1000, look=20, tolerance=0.2),
    "anytime, grid": Anytime(ALPHA, n0=10, n=1000, look=20, radii=(0.25, 0.5, 0.75)),
}

PROBABILITIES = {
    "just short of the radius": (P0 - 1e-9, 1 - P0 + 1e-9),
    "just short of a larger radius": (ndtr(0.6) - 1e-9, 1 - ndtr(0.6) + 1e-9),
    "nearly tied": (0.5 - 1e-9, 0.5 + 1e-9),
    "three nearly tied": (1 / 3 - 1e-9, 1 / 3, 1 / 3 + 1e-9),
    "two near the top": (0.45, 0.44, 0.11),
    "clear": (0.9, 0.07, 0.03),
    "ten classes": (0.2, 0.18, *([0.0775] * 8)),
}


@pytest.mark.parametrize("name", PROCEDURES_AT_ALPHA)
@pytest.mark.parametrize("case", PROBABILITIES)
@pytest.mark.parametrize("runs", [RUNS, pytest.param(CLOSER, marks=pytest.mark.slow)])
def test_failure_rate_is_at_most_alpha(name: str, case: str, runs: int) -> None:
    p = np.array(PROBABILITIES[case])
    prediction, radius = simulate(PROCEDURES_AT_ALPHA[name], p, runs, seed=len(name) * 1000 + len(case))
    assert false_claims(prediction, radius, p).sum() <= most_failures(runs, ALPHA)


@pytest.mark.parametrize("name", PROCEDURES_AT_ALPHA)
def test_failure_rate_is_at_most_a_large_alpha(name: str) -> None:
    """Where half may fail, what is given away hides little; also with a fifth of the draws in one more class."""
    procedure = replace(PROCEDURES_AT_ALPHA[name], alpha=LARGE)
    for case, classes in PROBABILITIES.items():
        for p in (np.array(classes), np.append(0.8 * np.array(classes), 0.2)):
            prediction, radius = simulate(procedure, p, RUNS // 20, seed=len(name) * 1000 + len(case))
            assert false_claims(prediction, radius, p).sum() <= most_failures(RUNS // 20, LARGE)


def test_every_procedure_is_under_the_law() -> None:
    elsewhere = {
        "softmax",
        "after-smoothing",
        "aces",
        "aces-predict",
        "aces-sequential",
    }  # test_score_procedures.py, test_aces.py
    assert {procedure.name for procedure in PROCEDURES_AT_ALPHA.values()} | elsewhere == set(PROCEDURES)


def test_spent_never_exceeds_alpha() -> None:
    for procedure in PROCEDURES_AT_ALPHA.values():
        assert 0 < sum(procedure.spent.values()) <= ALPHA * (1 + 1e-12)


class Peeking(Dishonest):
    """A fixed-n bound looked at again and again, the best one kept."""

    honest = Anytime(ALPHA, n0=10, n=2000, look=20)

    def update(self, state: State, tally: Tally, given: Given) -> State:
        best = state["lower"].copy()
        state = self.honest.update(state, tally, given)
        seen = state["drawn"] > 0
        best[seen] = np.maximum(best, clopper_pearson_lower(state["hits"], np.maximum(state["drawn"], 1), ALPHA))[seen]
        state["lower"] = best
        return state


class SameDraws(Dishonest):
    """The class is chosen from the draws that bound it, at all of alpha: nothing pays for the choice."""

    honest = Multinomial(ALPHA, n=200, form="one-sided")

    def conclude(self, state: State, given: Given) -> Decisions:
        p_a = clopper_pearson_lower(state["hits"], 200, ALPHA)
        return Decisions(state["top"], p_a, 1.0 - p_a)


class EveryStageAtAlpha(Dishonest):
    """Stages that do not share alpha: each of three certifies at all of it."""

    honest = Staged(RADIUS, 3 * ALPHA, beta=0.01, n0=10, stages=(100, 400, 2000))


class AsIfItsEndWereFixed(Dishonest):
    """Clopper-Pearson on the counts at which a sequential test stopped, as if that moment had been fixed."""

    honest = Sequential(RADIUS, ALPHA, beta=0.01, n0=10, n=2000, look=20)

    def conclude(self, state: State, given: Given) -> Decisions:
        p_a = clopper_pearson_lower(state["hits"], state["drawn"], ALPHA)
        return Decisions(state["top"], p_a, 1.0 - p_a)


@pytest.mark.parametrize(
    ("wrong", "case"),
    [
        (Peeking, "just short of a larger radius"),
        (SameDraws, "nearly tied"),
        (EveryStageAtAlpha, "just short of the radius"),
        (AsIfItsEndWereFixed, "just short of a larger radius"),
    ],
)
def test_the_law_catches(wrong: type[Dishonest], case: str) -> None:
    p = np.array(PROBABILITIES[case])
    prediction, radius = simulate(wrong(ALPHA), p, RUNS, seed=1)
    assert false_claims(prediction, radius, p).sum() > most_failures(RUNS, ALPHA)

"""Staged sampling for a known radius: CERTIFYADP, Horváth et al. 2022, algorithm 2."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, final

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.procedures.base import Decisions, Given, State, check_reachable, new_state
from ringfence.procedures.predict import Voted
from ringfence.settings import MOST_DRAWS, count, distance, setting, share
from ringfence.stats import AlphaLedger, ClopperPearson
from ringfence.stats.special import bdtr
from ringfence.types import ABSTAIN, BoolArray, IntArray, Tally

RUNNING, CERTIFIED, GAVE_UP = 0, 1, 2


@final
@dataclass(frozen=True)
class Staged(Voted):
    """Stages n_1 < ... < n_S of fresh draws; the class comes from n0 draws, once.

    Stage i certifies if L(k, n_i, alpha/S) >= p0, the probability that proves the radius, and abstains early, except
    in the last, if U(k, n_i, beta/(S-1)) < p0, which says "p_A < p0", not "not robust".
    """

    radius: float = distance(help="The radius to prove, in [0,1] pixel units.")
    alpha: float = share(0.001, help="Failure probability per input.")
    beta: float = share(0.0001, help="Error of giving up early, which costs certificates, never their truth.")
    n0: int = count(100, help="Draws that choose the class.")
    stages: tuple[int, ...] = setting(
        (1000, 10_000, 125_000), help="Fresh draws of each stage.", low=1, high=MOST_DRAWS
    )
    name: ClassVar[str] = "staged"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.stages or any(a >= b for a, b in pairwise(self.stages)):
            rule = "must be ascending numbers of draws, at least 1"
            raise ArgumentError("stages", rule, self.stages, "The usual value is 1000,10000,125000.")

    @property
    def targets(self) -> tuple[float, ...]:
        """The radius asked about."""
        return (self.radius,)

    @property
    def spent(self) -> Mapping[str, float]:
        """alpha/S for every stage."""
        count = len(self.stages)
        return AlphaLedger.shared(self.alpha, *((f"stage {i}", self.alpha / count) for i in range(1, count + 1)))

    def start(self, rows: int, given: Given) -> State:
        """p0 is kept per row, already divided by the lift's norm and rounded up."""
        check_reachable(self.radius, self.best_case(given), given, "Add draws to the last stage.")
        state = new_state(rows, [("top", "i8"), ("verdict", "i1"), ("p0", "f8")])
        state["p0"] = given.probability_for(self.radius)
        return state

    def request(self, state: State) -> IntArray:
        """n0, then the stage's draws."""
        wanted = np.array([self.n0, *self.stages])[state["stage"]]
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Choose the class; or certify, give up, go on."""
        state, votes, rows = state.copy(), tally.votes, np.arange(len(state))
        if not len(state):
            return state
        stage, count = state["stage"], len(self.stages)
        state["top"] = np.where(stage == 0, votes.argmax(1), state["top"])
        hits, last = votes[rows, state["top"]], stage == count
        certify, give_up = _thresholds(float(state["p0"][0]), self.stages, self.alpha, self.beta)
        certified = (stage > 0) & (hits >= certify[stage])
        hopeless = (stage > 0) & (hits <= give_up[stage])
        state["verdict"] = np.where(certified, CERTIFIED, np.where(hopeless | last, GAVE_UP, RUNNING))
        state["done"] = state["verdict"] != RUNNING
        state["stage"] = np.where(state["done"], stage, stage + 1)
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The target for the certified, nothing for the rest."""
        return decide_target(state["verdict"] == CERTIFIED, state, self.radius)

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all draws of the last stage agree: p_a = (alpha/S)^(1/n_S)."""
        last = self.stages[-1]
        lower = float(ClopperPearson(self.alpha / len(self.stages)).lower_at_fixed_n(last, last))
        return lower, 1.0 - lower

    @property
    def most_draws(self) -> int:
        """n0 and all stages."""
        return self.n0 + sum(self.stages)

    def expected_draws(self, p: float, given: Given) -> float:
        """Every stage's draws times the probability that all before it decided nothing."""
        certify, give_up = _thresholds(float(given.probability_for(self.radius)), self.stages, self.alpha, self.beta)
        going_on, mean = 1.0, float(self.n0)
        for n, needed, hopeless in zip(self.stages, certify[1:], give_up[1:], strict=True):
            mean += going_on * n
            going_on *= float(bdtr(needed - 1, n, p) - (bdtr(hopeless, n, p) if hopeless >= 0 else 0.0))
        return mean

    @property
    def sources(self) -> tuple[str, ...]:
        """Who proposed it, and alpha divided over the stages."""
        return "horvath2022", "dunn1961"


@lru_cache(maxsize=64)
def _thresholds(p0: float, stages: tuple[int, ...], alpha: float, beta: float) -> tuple[IntArray, IntArray]:
    """Counts (S+1,) per stage: certify from L(k, n_i, alpha/S) >= p0 on, give up while U(k, n_i, beta/(S-1)) < p0.

    Both bounds grow with k, so that at run time integers are compared; entry 0, the selection, does neither.
    """
    count = len(stages)
    certify, give_up = [stages[0] + 1], [-1]
    for number, n in enumerate(stages, start=1):
        lower = ClopperPearson(alpha / count).lower_at_fixed_n
        certify.append(bisect_left(range(n + 1), True, key=lambda k, n=n: bool(lower(k, n) >= p0)))  # type: ignore[misc]
        if number == count or count == 1:
            give_up.append(-1)
            continue
        upper = ClopperPearson(beta / (count - 1)).upper_at_fixed_n
        give_up.append(bisect_left(range(n + 1), True, key=lambda k, n=n: bool(upper(k, n) >= p0)) - 1)  # type: ignore[misc]
    return np.array(certify, np.int64), np.array(give_up, np.int64)


def decide_target(certified: BoolArray, state: State, radius: float) -> Decisions:
    """Decisions of a procedure that proves p_A >= p0 and so the target radius, or nothing."""
    prediction = np.where(certified, state["top"], ABSTAIN).astype(np.int64)
    p_a = np.where(certified, state["p0"], 0.0)
    return Decisions(prediction, p_a, 1.0 - p_a, np.where(certified, radius, 0.0))

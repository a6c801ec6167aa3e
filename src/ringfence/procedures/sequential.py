"""Sequential certification at a known radius: an exact group-sequential binomial test (METHODS 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, final

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided
from ringfence.procedures.base import Decisions, Given, State
from ringfence.procedures.sequential_looks import SequentialLooks
from ringfence.stats import AlphaLedger
from ringfence.types import ABSTAIN, Tally

RUNNING, CERTIFIED, GAVE_UP = 0, 1, 2


@final
@dataclass(frozen=True)
class Sequential(SequentialLooks):
    """n0 draws choose the class and are discarded; then, at looks n_1 < n_2 < ... fixed beforehand, S_k
    successes among the draws with index below n_k certify if S_k >= u_k and give up if S_k <= v_k.

    P(certify) <= alpha for every p_A < p0 = Phi(r/sigma), exactly; beta costs power, never soundness.
    larger: an ascending grid of radii above the target, tested on the same path up to the stop; the
    largest is reported such that it and all smaller ones crossed their own boundary (no extra alpha).
    """

    larger: tuple[float, ...] = ()
    name: ClassVar[str] = "sequential"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "larger", tuple(self.larger))
        grid = (self.radius, *self.larger)
        if any(a >= b for a, b in pairwise(grid)):
            raise ArgumentError("larger", "must ascend from the radius", self.larger, "Sort the radii.")

    @property
    def level(self) -> float:
        """All of it."""
        return self.alpha

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the sequential test."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("group-sequential test", self.alpha)
        return ledger.spent

    def start(self, rows: int, given: Given) -> State:
        """p0 per row and radius of the grid, divided by the lift's norm and rounded up."""
        grid = np.array([self.radius, *self.larger])
        size = (len(grid),)
        state = self._begun(rows, given, [("verdict", "i1"), ("grid", "f8", size), ("crossed", "?", size)])
        state["grid"] = one_sided.probability_for(grid * given.norm_bound, given.sigma)
        return state

    def update(self, state: State, tally: Tally) -> State:
        """Choose the class; or one look: integer comparisons for all rows at once."""
        state, votes, rows = state.copy(), tally.votes, np.arange(len(state))
        if not len(state):
            return state
        selecting = state["stage"] == 0
        state["top"] = np.where(selecting, votes.argmax(1), state["top"])
        state["hits"] += np.where(selecting, 0, votes[rows, state["top"]])
        state["drawn"] += np.where(selecting, 0, tally.draws)
        look = state["look"]
        for column, p0 in enumerate(state["grid"][0]):
            reached = self.design(float(p0)).certify_at[look]
            state["crossed"][:, column] |= ~selecting & (state["hits"] >= reached)
        design = self.design(float(state["p0"][0]))
        hopeless = ~selecting & ((state["hits"] <= design.give_up_at[look]) | (look == len(design.looks) - 1))
        certified = state["crossed"][:, 0]
        state["verdict"] = np.where(certified, CERTIFIED, np.where(hopeless, GAVE_UP, RUNNING))
        state["done"] = state["verdict"] != RUNNING
        state["look"] += ~selecting & ~state["done"]
        state["stage"] = 1
        return state

    def conclude(self, state: State) -> Decisions:
        """The largest radius of the grid up to which everything crossed, or nothing."""
        reached = np.cumprod(state["crossed"], axis=1).sum(1)
        grid = np.array([0.0, self.radius, *self.larger])
        p_a = np.concatenate([np.zeros((len(state), 1)), state["grid"]], axis=1)[np.arange(len(state)), reached]
        prediction = np.where(reached > 0, state["top"], ABSTAIN).astype(np.int64)
        return Decisions(prediction, p_a, 1.0 - p_a, grid[reached])

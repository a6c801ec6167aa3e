"""Sequential certification at a known radius: an exact group-sequential binomial test (METHODS 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, final

import numpy as np
from scipy.special import ndtri

from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided
from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_radius, check_reachable, check_share
from ringfence.stats import AlphaLedger, GroupSequentialDesign, group_sequential_design
from ringfence.types import ABSTAIN, IntArray, Tally

RUNNING, CERTIFIED, GAVE_UP = 0, 1, 2


@final
@dataclass(frozen=True)
class Sequential(Procedure):
    """n0 draws choose the class and are discarded; then, at looks n_1 < n_2 < ... fixed beforehand, S_k
    successes among the draws with index below n_k certify if S_k >= u_k and give up if S_k <= v_k.

    P(certify) <= alpha for every p_A < p0 = Phi(r/sigma), exactly; beta costs power, never soundness.
    The looks grow by ratio (None: 1.1, or 1.25 where look is 1000 or more).
    larger: an ascending grid of radii above the target, tested on the same path up to the stop; the
    largest is reported such that it and all smaller ones crossed their own boundary (no extra alpha).
    """

    radius: float
    alpha: float = 0.001
    beta: float = 0.001
    n0: int = 100
    n: int = 110_000
    look: int = 100
    ratio: float | None = None
    larger: tuple[float, ...] = ()
    name: ClassVar[str] = "sequential"

    def __post_init__(self) -> None:
        check_radius("radius", self.radius)
        check_share("alpha", self.alpha)
        check_share("beta", self.beta)
        for name in ("n0", "n", "look"):
            check_count(name, getattr(self, name))
        object.__setattr__(self, "larger", tuple(self.larger))
        grid = (self.radius, *self.larger)
        if any(a >= b for a, b in pairwise(grid)):
            raise ArgumentError("larger", "must ascend from the radius", self.larger, "Sort the radii.")

    @property
    def target(self) -> float:
        """The radius asked about."""
        return self.radius

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the sequential test."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("group-sequential test", self.alpha)
        return ledger.spent

    def design(self, p0: float) -> GroupSequentialDesign:
        """The boundaries for one hypothesis p_A < p0; cached, the same looks for every p0."""
        ratio = self.ratio if self.ratio is not None else 1.1 if self.look < 1000 else 1.25
        return group_sequential_design(p0, self.alpha, self.beta, self.n, self.look, ratio)

    def start(self, rows: int, given: Given) -> State:
        """p0 per row and radius of the grid, divided by the lift's norm and rounded up."""
        check_reachable(
            self.radius, self.largest_radius(given.sigma) / given.norm_bound, given.sigma, "Raise n or sigma."
        )
        grid = np.array([self.radius, *self.larger])
        size = (len(grid),)
        fields = [
            ("top", "i8"),
            ("hits", "i8"),
            ("look", "i4"),
            ("verdict", "i1"),
            ("p0", "f8"),
            ("grid", "f8", size),
            ("crossed", "?", size),
        ]
        state = new_state(rows, fields)
        state["grid"] = one_sided.probability_for(grid * given.norm_bound, given.sigma)
        state["p0"] = state["grid"][:, 0]
        return state

    def request(self, state: State) -> IntArray:
        """n0, then as many draws as the next look needs."""
        if not len(state):
            return np.zeros(0, np.int64)
        looks = self.design(float(state["p0"][0])).looks
        upcoming = looks[np.minimum(state["look"], len(looks) - 1)]
        wanted = np.where(state["stage"] == 0, self.n0, upcoming - state["drawn"])
        return np.where(state["done"], 0, wanted).astype(np.int64)

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

    def largest_radius(self, sigma: float) -> float:
        """If all N draws agree, p0^N <= alpha: sigma * PhiInv(alpha^(1/N))."""
        last = -(-self.n // self.look) * self.look
        return float(-sigma * ndtri(-np.expm1(np.log(self.alpha) / last)) * (1 - 1e-9))

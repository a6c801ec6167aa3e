"""Ensemble AFTER smoothing: every member is smoothed on its own (Yang et al. 2022, theorem 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.base import ChooseThenBound, Decisions, Given, State, new_state
from ringfence.settings import count, share
from ringfence.stats import AlphaLedger, ClopperPearson
from ringfence.types import ABSTAIN, Tally


@final
@dataclass(frozen=True)
class EnsembleAfterSmoothing(ChooseThenBound):
    """The answer is the class of the smoothed member with the largest probability.

    n0 draws choose the class y and the member i* that votes for it most; n fresh draws give
    p_a = L of (i*, y) at alpha/2 and p_b = max over ALL members i and classes j != y of U_ij at alpha/2 (the
    true maximiser is one fixed pair, so no union is needed); invalid scores are one more j. The radius between
    the two is the paper's (max_i r_i + min_i r_i)/2 in bounds that hold. The classifier gives one lane per member.
    """

    alpha: float = share(0.001, help="Failure probability per input.")
    n0: int = count(100, help="Draws that choose class and member.")
    n: int = count(100_000, help="Draws that bound it.")
    name: ClassVar[str] = "after-smoothing"
    needs: ClassVar[tuple[str, ...]] = ("member_votes",)

    @property
    def spent(self) -> Mapping[str, float]:
        """Half on each side."""
        return AlphaLedger.shared(self.alpha, ("lower bound", self.alpha / 2), ("upper bound", self.alpha / 2))

    def start(self, rows: int, given: Given) -> State:
        """Nothing counted; a mechanism without a proof for members smoothed apart is refused."""
        given.mechanism.between(1.0, 0.0, given.law)
        return new_state(rows, [("top", "i8"), ("member", "i4"), ("hits", "i8"), ("rival", "i8")])

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Choose the pair (member, class) with most votes, or count it and its strongest rival."""
        state = state.copy()
        if not len(state):
            return state
        cells, classes = tally.cells["member_votes"], given.num_classes
        outcomes = cells.reshape(len(cells), -1, classes + 1)  # (rows, members, K and the invalid outcome)
        votes = outcomes[:, :, :classes]
        rows, choosing = np.arange(len(state)), state["stage"] == 0
        best = votes.reshape(len(cells), -1).argmax(1)
        state["member"] = np.where(choosing, best // classes, state["member"])
        state["top"] = np.where(choosing, best % classes, state["top"])
        others = outcomes.copy()  # an invalid score is an outcome too, and a rival of every class
        others[rows, :, state["top"]] = -1
        state["hits"] = np.where(choosing, 0, votes[rows, state["member"], state["top"]])
        state["rival"] = np.where(choosing, 0, others.reshape(len(cells), -1).max(1).clip(min=0))
        state["drawn"] = np.where(choosing, 0, tally.draws)
        state["done"] = ~choosing
        state["stage"] = 1
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The class, its bounds, which belong to different members, and the radius between them, rounded down."""
        p_a, p_b = np.zeros(len(state)), np.ones(len(state))
        done, spent = state["done"], self.spent
        p_a[done] = ClopperPearson(spent["lower bound"]).lower_at_fixed_n(state["hits"][done], self.n)
        p_b[done] = ClopperPearson(spent["upper bound"]).upper_at_fixed_n(state["rival"][done], self.n)
        radius = given.mechanism.between(p_a, p_b, given.law) * given.down
        return Decisions(np.where(radius > 0, state["top"], ABSTAIN).astype(np.int64), p_a, p_b, radius)

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all members always agree."""
        lower = float(ClopperPearson(self.spent["lower bound"]).lower_at_fixed_n(self.n, self.n))
        return lower, 1.0 - lower

    @property
    def sources(self) -> tuple[str, ...]:
        """Who proposed it."""
        return ("yang2022",)

"""Ensemble AFTER smoothing: every member is smoothed on its own (Yang et al. 2022, theorem 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.special import ndtri

from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_share
from ringfence.stats import AlphaLedger, ClopperPearson
from ringfence.types import ABSTAIN, IntArray, Tally


@final
@dataclass(frozen=True)
class EnsembleAfterSmoothing(Procedure):
    """The answer is the class of the smoothed member with the largest probability.

    n0 draws choose the class y and the member i* that votes for it most; n fresh draws give
    p_a = L of (i*, y) at alpha/2 and p_b = max over ALL members i and classes j != y of U_ij at alpha/2 (the
    true maximiser is one fixed pair, so no union is needed); invalid scores are one more j. Its radius
    sigma/2 (PhiInv(p_a) - PhiInv(p_b)) is
    the paper's (max_i r_i + min_i r_i)/2 in bounds that hold. The classifier gives one lane per member.
    """

    alpha: float = 0.001
    n0: int = 100
    n: int = 100_000
    name: ClassVar[str] = "after-smoothing"
    needs: ClassVar[tuple[str, ...]] = ("member_votes",)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n0", self.n0)
        check_count("n", self.n)

    @property
    def spent(self) -> Mapping[str, float]:
        """Half on each side."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("lower bound", self.alpha / 2)
        ledger.take("upper bound", ledger.left)
        return ledger.spent

    def start(self, rows: int, given: Given) -> State:
        """classes is kept, because the tally's cells are members x (classes + 1); scale = sigma / lift norm."""
        fields = [("classes", "i4"), ("scale", "f8"), ("top", "i8"), ("member", "i4"), ("hits", "i8"), ("rival", "i8")]
        state = new_state(rows, fields)
        state["classes"] = given.num_classes
        state["scale"] = given.sigma / given.norm_bound
        return state

    def request(self, state: State) -> IntArray:
        """n0, then n."""
        wanted = np.where(state["stage"] == 0, self.n0, self.n)
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Choose the pair (member, class) with most votes, or count it and its strongest rival."""
        state = state.copy()
        if not len(state):
            return state
        cells, classes = tally.cells["member_votes"], int(state["classes"][0])
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

    def conclude(self, state: State) -> Decisions:
        """The class, its bounds and the radius, rounded down.

        The bounds belong to different members, so p_a + p_b may exceed 1 and mechanisms, which speak of one
        classifier, do not apply: the radius is computed here.
        """
        p_a, p_b = np.zeros(len(state)), np.ones(len(state))
        done, spent = state["done"], self.spent
        p_a[done] = ClopperPearson(spent["lower bound"]).lower_at_fixed_n(state["hits"][done], self.n)
        p_b[done] = ClopperPearson(spent["upper bound"]).upper_at_fixed_n(state["rival"][done], self.n)
        proved = p_a > p_b
        radius = np.zeros(len(state))
        gap = ndtri(p_a[proved]) - ndtri(p_b[proved])
        radius[proved] = np.maximum(state["scale"][proved] / 2 * gap * (1 - 1e-9) - 1e-14, 0.0)
        return Decisions(np.where(radius > 0, state["top"], ABSTAIN).astype(np.int64), p_a, p_b, radius)

    def largest_radius(self, sigma: float) -> float:
        """If all members always agree."""
        lower = ClopperPearson(self.spent["lower bound"]).lower_at_fixed_n(np.array([self.n]), self.n)
        return float(sigma * ndtri(lower[0]))

"""Fixed-sample certification: n0 draws choose the class, n fresh draws bound its probability; of one classifier, or of
an ensemble AFTER smoothing, every member smoothed on its own (Yang et al. 2022, theorem 5)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.base import ChooseThenBound, Decisions, Given, State, new_state, strongest_rival
from ringfence.procedures.predict import Voted
from ringfence.settings import count, setting
from ringfence.stats import AlphaLedger, ClopperPearson
from ringfence.types import ABSTAIN, FloatArray, IntArray, Tally

SELECT, ESTIMATE = 0, 1


class SelectThenEstimate(ChooseThenBound, Voted):
    """Stage 0 selects argmax of the votes among n0 draws, stage 1 counts it among n others."""

    @abstractmethod
    def bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        """(p_a, p_b) from the counts (rows,) of the chosen class and of the best other class among n draws."""

    def start(self, rows: int, given: Given) -> State:
        """No class yet."""
        return new_state(rows, [("top", "i8"), ("hits", "i8"), ("rival", "i8")])

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Choose the class, or count it."""
        state, votes = state.copy(), tally.votes
        selecting = state["stage"] == SELECT
        top = np.where(selecting, votes.argmax(1), state["top"])
        state["hits"] = np.where(selecting, 0, votes[np.arange(len(state)), top])
        state["rival"] = np.where(selecting, 0, strongest_rival(tally.cells["votes"], top))
        state["top"] = top
        state["drawn"] = np.where(selecting, 0, tally.draws)
        state["done"] = ~selecting
        state["stage"] = ESTIMATE
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The chosen class with its bounds; the mechanism decides whether they give a radius."""
        p_a, p_b = np.zeros(len(state)), np.ones(len(state))
        done = state["done"]
        p_a[done], p_b[done] = self.bounds(state["hits"][done], state["rival"][done])
        return Decisions(state["top"].astype(np.int64), p_a, p_b)

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all n draws agree."""
        p_a, p_b = self.bounds(np.array([self.n]), np.zeros(1, np.int64))
        return float(p_a[0]), float(p_b[0])


@final
@dataclass(frozen=True)
class Fixed(SelectThenEstimate):
    """CERTIFY of Cohen et al. 2019: p_a = L(k, n, alpha), p_b = 1 - p_a."""

    name: ClassVar[str] = "fixed"

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the lower bound."""
        return AlphaLedger.shared(self.alpha, ("lower bound", self.alpha))

    def bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        """Clopper-Pearson at alpha."""
        p_a = ClopperPearson(self.alpha).lower_at_fixed_n(hits, self.n)
        return p_a, 1.0 - p_a


@final
@dataclass(frozen=True)
class TwoSided(SelectThenEstimate):
    """p_a = L(k_c, n, a1), p_b = min(1 - p_a, U(max_{j != c} k_j, n, a2)), a1 + a2 = alpha.

    No factor K-1: once c is fixed the true runner-up is one fixed class, and U is monotone in the count.
    lower_share is a1/alpha.
    """

    lower_share: float = setting(
        0.5, help="Share of alpha for the lower bound; the rest bounds the other classes.", low=1e-9, below=1
    )
    name: ClassVar[str] = "two-sided"

    @property
    def spent(self) -> Mapping[str, float]:
        """The two bounds' shares."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("lower bound", self.lower_share * self.alpha)
        ledger.take("upper bound", ledger.left)
        return ledger.spent

    def bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        """Clopper-Pearson on both sides."""
        spent = self.spent
        p_a = ClopperPearson(spent["lower bound"]).lower_at_fixed_n(hits, self.n)
        p_b = ClopperPearson(spent["upper bound"]).upper_at_fixed_n(rival, self.n)
        return p_a, np.minimum(1.0 - p_a, p_b)


@final
@dataclass(frozen=True)
class EnsembleAfterSmoothing(ChooseThenBound):
    """The answer is the class of the smoothed member with the largest probability.

    n0 draws choose the class y and the member i* that votes for it most; n fresh draws give
    p_a = L of (i*, y) at alpha/2 and p_b = max over ALL members i and classes j != y of U_ij at alpha/2 (the
    true maximiser is one fixed pair, so no union is needed); invalid scores are one more j. The radius between
    the two is the paper's (max_i r_i + min_i r_i)/2 in bounds that hold. The classifier gives one lane per member.
    """

    n0: int = count(100, help="Draws that choose class and member.")
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

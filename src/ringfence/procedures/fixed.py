"""Fixed-sample certification: n0 draws choose the class, n fresh draws bound its probability."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.special import ndtri

from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_share
from ringfence.stats import AlphaLedger, ClopperPearson
from ringfence.types import FloatArray, IntArray, Tally

SELECT, ESTIMATE = 0, 1


class SelectThenEstimate(Procedure):
    """Stage 0 selects argmax of the votes among n0 draws, stage 1 counts it among n others.

    The two never share draws: bounds on a class chosen from the same counts would not hold at alpha.
    """

    n0: int
    n: int

    @abstractmethod
    def bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        """(p_a, p_b) from the counts (rows,) of the chosen class and of the best other class among n draws."""

    def start(self, rows: int, given: Given) -> State:
        """No class yet."""
        return new_state(rows, [("top", "i8"), ("hits", "i8"), ("rival", "i8")])

    def request(self, state: State) -> IntArray:
        """n0, then n, then nothing."""
        wanted = np.where(state["stage"] == SELECT, self.n0, self.n)
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Choose the class, or count it."""
        state, votes = state.copy(), tally.votes
        selecting = state["stage"] == SELECT
        top = np.where(selecting, votes.argmax(1), state["top"])
        rows = np.arange(len(state))
        others = tally.cells["votes"].copy()  # an invalid score is an outcome too, and a rival of every class
        others[rows, top] = -1
        state["hits"] = np.where(selecting, 0, votes[rows, top])
        state["rival"] = np.where(selecting, 0, others.max(1, initial=0))
        state["top"] = top
        state["drawn"] = np.where(selecting, 0, tally.draws)
        state["done"] = ~selecting
        state["stage"] = ESTIMATE
        return state

    def conclude(self, state: State) -> Decisions:
        """The chosen class with its bounds; the mechanism decides whether they give a radius."""
        p_a, p_b = np.zeros(len(state)), np.ones(len(state))
        done = state["done"]
        p_a[done], p_b[done] = self.bounds(state["hits"][done], state["rival"][done])
        return Decisions(state["top"].astype(np.int64), p_a, p_b)

    def largest_radius(self, sigma: float) -> float:
        """If all n draws agree, L = alpha^(1/n): sigma * PhiInv(L)."""
        hits = np.array([self.n])
        return float(sigma * ndtri(self.bounds(hits, np.zeros(1, np.int64))[0][0]))


@final
@dataclass(frozen=True)
class Fixed(SelectThenEstimate):
    """CERTIFY of Cohen et al. 2019: p_a = L(k, n, alpha), p_b = 1 - p_a."""

    alpha: float = 0.001
    n0: int = 100
    n: int = 100_000
    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n0", self.n0)
        check_count("n", self.n)

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the lower bound."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("lower bound", self.alpha)
        return ledger.spent

    def bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        """Clopper-Pearson at alpha."""
        p_a = ClopperPearson(self.alpha).lower_at_fixed_n(hits, self.n)
        return p_a, 1.0 - p_a


@final
@dataclass(frozen=True)
class TwoSided(SelectThenEstimate):
    """p_a = L(k_c, n, a1), p_b = min(1 - p_a, U(max_{j != c} k_j, n, a2)), a1 + a2 = alpha (METHODS 2).

    No factor K-1: once c is fixed the true runner-up is one fixed class, and U is monotone in the count.
    lower_share is a1/alpha.
    """

    alpha: float = 0.001
    n0: int = 100
    n: int = 100_000
    lower_share: float = 0.5
    name: ClassVar[str] = "two-sided"

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_share("lower_share", self.lower_share)
        check_count("n0", self.n0)
        check_count("n", self.n)

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

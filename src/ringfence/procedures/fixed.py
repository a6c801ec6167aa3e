"""Fixed-sample certification: n0 draws choose the class, n fresh draws bound its probability."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.base import ChooseThenBound, Decisions, Given, State, new_state, strongest_rival
from ringfence.procedures.predict import Voted
from ringfence.settings import count, share
from ringfence.stats import AlphaLedger, ClopperPearson
from ringfence.types import FloatArray, IntArray, Tally

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

    alpha: float = share(0.001, help="Failure probability per input.")
    n0: int = count(100, help="Draws that choose the class.")
    n: int = count(100_000, help="Draws that bound it.")
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

    alpha: float = share(0.001, help="Failure probability per input.")
    n0: int = count(100, help="Draws that choose the class.")
    n: int = count(100_000, help="Draws that bound it.")
    lower_share: float = share(0.5, help="Share of alpha for the lower bound; the rest bounds the other classes.")
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

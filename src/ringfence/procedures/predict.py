"""PREDICT of Cohen et al. 2019: which class is the smoothed classifier's, without a radius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state, strongest_rival
from ringfence.settings import count, share
from ringfence.stats import AlphaLedger, rank_test
from ringfence.types import ABSTAIN, IntArray, Tally


class TopTwo(Procedure):
    """n draws at once give the top class and its strongest rival; stage 0 is the only one."""

    n: int

    def start(self, rows: int, given: Given) -> State:
        """Nothing counted."""
        return new_state(rows, [("top", "i8"), ("hits", "i8"), ("rival", "i8")])

    def request(self, state: State) -> IntArray:
        """n draws, once."""
        return np.where(state["done"], 0, self.n).astype(np.int64)

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Keep the largest count and the largest of the others."""
        state = state.copy()
        state["top"] = tally.votes.argmax(1)
        state["hits"] = tally.votes[np.arange(len(state)), state["top"]]
        state["rival"] = strongest_rival(tally.cells["votes"], state["top"])
        state["drawn"] = tally.draws
        state["done"] = True
        return state

    @property
    def most_draws(self) -> int:
        """n."""
        return self.n


@final
@dataclass(frozen=True)
class Predict(TopTwo):
    """The top class if 2*P(Bin(n_a + n_b, 1/2) >= n_a) <= alpha, else abstain; radius 0."""

    alpha: float = share(0.001, help="Failure probability per input.")
    n: int = count(1000, help="Draws per input.")
    name: ClassVar[str] = "predict"

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the rank test."""
        return AlphaLedger.shared(self.alpha, ("rank test", self.alpha))

    def conclude(self, state: State, given: Given) -> Decisions:
        """The rank test; nothing is claimed about probabilities."""
        passed = state["done"] & (rank_test(state["hits"], state["rival"]) <= self.alpha)
        prediction = np.where(passed, state["top"], ABSTAIN).astype(np.int64)
        rows = len(state)
        return Decisions(prediction, np.zeros(rows), np.ones(rows), radius=np.zeros(rows))

    @property
    def best_bounds(self) -> tuple[float, float]:
        """No radius is claimed."""
        return 0.0, 1.0

    def predictor(self, draws: int) -> Procedure:
        """Itself."""
        return self

    def claim(self, norm: str) -> str:
        """About the class alone."""
        return "each answer is the smoothed classifier's most probable class"


class Voted(Procedure):
    """About the class that most noisy copies vote for, which is what PREDICT answers."""

    def predictor(self, draws: int) -> Procedure:
        """PREDICT at the same alpha."""
        return Predict(self.alpha, draws)

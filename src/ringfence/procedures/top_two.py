"""What PREDICT and multinomial certification share: n draws at once, the top class and its strongest rival."""

from __future__ import annotations

import numpy as np

from ringfence.procedures.base import Given, Procedure, State, new_state
from ringfence.types import IntArray, Tally


class TopTwo(Procedure):
    """Stage 0 is the only one; the class and its rival come from the same draws."""

    n: int

    def start(self, rows: int, given: Given) -> State:
        """Nothing counted."""
        return new_state(rows, [("top", "i8"), ("hits", "i8"), ("rival", "i8")])

    def request(self, state: State) -> IntArray:
        """n draws, once."""
        return np.where(state["done"], 0, self.n).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Keep the largest count and the largest of the others."""
        state, rows = state.copy(), np.arange(len(state))
        state["top"] = tally.votes.argmax(1)
        others = tally.cells["votes"].copy()  # an invalid score is an outcome too, and a rival of every class
        state["hits"] = others[rows, state["top"]]
        others[rows, state["top"]] = -1
        state["rival"] = others.max(1)
        state["drawn"] = tally.draws
        state["done"] = True
        return state

"""Softmax certification: bounds on mean softmax scores instead of vote counts (Cullen et al. 2024, algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.procedures.base import ChooseThenBound, Decisions, Given, State, new_state
from ringfence.settings import setting
from ringfence.stats import AlphaLedger, MeanBound, histogram_lower, histogram_upper
from ringfence.types import ABSTAIN, BINS, SCORE_EDGES, FloatArray, IntArray, Tally

DOWN: FloatArray = SCORE_EDGES
"""Value (BINS+1,) of each bin rounded down; the last entry is the appended bin that takes invalid draws seen as 1."""
UP: FloatArray = np.append(SCORE_EDGES[1:], 1.0)
"""The same rounded up."""


@final
@dataclass(frozen=True)
class Softmax(ChooseThenBound):
    """E_k = mean softmax score of class k; p_a bounds E_c below, p_b every other E_j above.

    sound: n0 draws choose c, n fresh draws bound it: L_c(alpha/2) and max_j U_j(alpha/2) (no union: the true
    runner-up is one fixed class), by betting, empirical Bernstein or Hoeffding on histograms rounded to the
    safe side; an invalid score counts as 0 below and as 1 above.
    paper: class and bounds from the same n draws, Hoeffding with ln(2/alpha) on the two largest means.
    """

    bound: MeanBound = setting("betting", help="What bounds a mean score.")
    form: Literal["sound", "paper"] = setting("sound", help="paper: the class comes from the draws that bound it.")
    name: ClassVar[str] = "softmax"
    needs: ClassVar[tuple[str, ...]] = ("scores",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.form == "paper" and self.bound != "hoeffding":
            raise ArgumentError("bound", "the paper's form uses hoeffding", self.bound, "Use bound hoeffding.")

    @property
    def sound(self) -> bool:
        """The paper's form chooses the class from the draws that bound it."""
        return self.form == "sound"

    @property
    def spent(self) -> Mapping[str, float]:
        """Half on each side."""
        return AlphaLedger.shared(self.alpha, ("lower bound", self.alpha / 2), ("upper bound", self.alpha / 2))

    def start(self, rows: int, given: Given) -> State:
        """The paper's form has no stage that chooses the class."""
        state = new_state(rows, [("top", "i8"), ("p_a", "f8"), ("p_b", "f8")])
        state["p_b"] = 1.0
        state["stage"] = 0 if self.form == "sound" else 1
        return state

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Choose the class, or bound all means."""
        state = state.copy()
        histograms, invalid = tally.score_histograms
        choosing = state["stage"] == 0
        means = histograms @ ((DOWN + UP)[:BINS] / 2) / np.maximum(tally.draws, 1)[:, None]
        if self.form == "paper" or choosing.any():
            state["top"] = np.where(choosing | (self.form == "paper"), means.argmax(1), state["top"])
        estimating = ~choosing
        if estimating.any():
            p_a, p_b = self._bounds(
                histograms[estimating], invalid[estimating], means[estimating], state["top"][estimating]
            )
            state["p_a"][estimating], state["p_b"][estimating] = p_a, np.minimum(1.0 - p_a, p_b)
        state["drawn"] = np.where(choosing, 0, tally.draws)
        state["done"] = estimating
        state["stage"] = 1
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The chosen class with its bounds."""
        prediction = np.where(state["done"], state["top"], ABSTAIN).astype(np.int64)
        return Decisions(prediction, state["p_a"].copy(), state["p_b"].copy())

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If every draw falls into the class's last bin."""
        counts = np.zeros((1, BINS + 1), np.int64)
        counts[0, BINS - 1] = self.n
        lower = float(histogram_lower(DOWN, counts, self.spent["lower bound"], self.bound)[0])
        return lower, 1.0 - lower

    @property
    def most_draws(self) -> int:
        """The paper's form has no draws that choose the class."""
        return self.n if self.form == "paper" else self.n0 + self.n

    @property
    def sources(self) -> tuple[str, ...]:
        """Who proposed it, and the bound on means."""
        bound = {"betting": "waudby-smith2024", "bernstein": "maurer2009", "hoeffding": "hoeffding1963"}
        return "cullen2024", bound[self.bound]

    def _bounds(
        self, histograms: IntArray, invalid: IntArray, means: FloatArray, top: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """p_a and p_b (rows,) from histograms (rows, K, BINS)."""
        rows, classes = np.arange(len(top)), histograms.shape[1]
        if self.form == "paper":
            margin = np.sqrt(np.log(2 / self.alpha) / (2 * self.n))
            ordered = np.sort(means, axis=1)
            return np.clip(ordered[:, -1] - margin, 0, 1), np.clip(ordered[:, -2] + margin, 0, 1)
        # An invalid draw is a 0 for the lower bound (bin 0) and a 1 for the upper one (the appended bin).
        chosen = np.pad(histograms[rows, top], ((0, 0), (0, 1)))
        chosen[:, 0] += invalid
        p_a = histogram_lower(DOWN, chosen, self.spent["lower bound"], self.bound)
        others = np.pad(histograms, ((0, 0), (0, 0), (0, 1)))
        others[:, :, BINS] = invalid[:, None]
        upper = histogram_upper(UP, others, self.spent["upper bound"], self.bound)
        upper[np.arange(classes)[None, :] == top[:, None]] = 0.0
        return p_a, upper.max(1)

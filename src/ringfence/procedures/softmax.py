"""Softmax certification: bounds on mean softmax scores instead of vote counts (Cullen et al. 2022, algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from scipy.special import ndtri

from ringfence.errors import ArgumentError
from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_share
from ringfence.stats import AlphaLedger, MeanBound, check_mean_bound, histogram_lower, histogram_upper
from ringfence.types import ABSTAIN, BINS, SCORE_EDGES, FloatArray, IntArray, Tally

DOWN: FloatArray = SCORE_EDGES
"""Value (BINS+1,) of each bin rounded down; the last entry is the appended bin that takes invalid draws seen as 1."""
UP: FloatArray = np.append(SCORE_EDGES[1:], 1.0)
"""The same rounded up."""


@final
@dataclass(frozen=True)
class Softmax(Procedure):
    """E_k = mean softmax score of class k; p_a bounds E_c below, p_b every other E_j above.

    sound: n0 draws choose c, n fresh draws bound it: L_c(alpha/2) and max_j U_j(alpha/2) (no union: the true
    runner-up is one fixed class), by betting, empirical Bernstein or Hoeffding on histograms rounded to the
    safe side; an invalid score counts as 0 below and as 1 above.
    paper: class and bounds from the same n draws, Hoeffding with ln(2/alpha) on the two largest means.
    """

    alpha: float = 0.001
    n0: int = 100
    n: int = 100_000
    bound: MeanBound = "betting"
    form: Literal["sound", "paper"] = "sound"
    name: ClassVar[str] = "softmax"
    needs: ClassVar[tuple[str, ...]] = ("scores",)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n0", self.n0)
        check_count("n", self.n)
        check_mean_bound(self.bound)
        if self.form not in ("sound", "paper"):
            raise ArgumentError("form", "must be sound or paper", repr(self.form), "sound is the default.")
        if self.form == "paper" and self.bound != "hoeffding":
            raise ArgumentError("bound", "the paper's form uses hoeffding", self.bound, "Add --bound hoeffding.")

    @property
    def sound(self) -> bool:
        """The paper's form chooses the class from the draws that bound it."""
        return self.form == "sound"

    @property
    def spent(self) -> Mapping[str, float]:
        """Half on each side."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("lower bound", self.alpha / 2)
        ledger.take("upper bound", ledger.left)
        return ledger.spent

    def start(self, rows: int, given: Given) -> State:
        """The paper's form has no stage that chooses the class."""
        state = new_state(rows, [("top", "i8"), ("p_a", "f8"), ("p_b", "f8")])
        state["p_b"] = 1.0
        state["stage"] = 0 if self.form == "sound" else 1
        return state

    def request(self, state: State) -> IntArray:
        """n0, then n."""
        wanted = np.where(state["stage"] == 0, self.n0, self.n)
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
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

    def conclude(self, state: State) -> Decisions:
        """The chosen class with its bounds."""
        prediction = np.where(state["done"], state["top"], ABSTAIN).astype(np.int64)
        return Decisions(prediction, state["p_a"].copy(), state["p_b"].copy())

    def largest_radius(self, sigma: float) -> float:
        """If every draw falls into the class's last bin."""
        counts = np.zeros((1, BINS + 1), np.int64)
        counts[0, BINS - 1] = self.n
        lower = histogram_lower(DOWN, counts, self.spent["lower bound"], self.bound)
        return float(sigma * ndtri(lower[0]))

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

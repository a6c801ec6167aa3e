"""PREDICT of Cohen et al. 2019: which class is the smoothed classifier's, without a radius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.base import Decisions, State
from ringfence.procedures.checks import check_count, check_share
from ringfence.procedures.top_two import TopTwo
from ringfence.stats import AlphaLedger, rank_test
from ringfence.types import ABSTAIN


@final
@dataclass(frozen=True)
class Predict(TopTwo):
    """The top class if 2*P(Bin(n_a + n_b, 1/2) >= n_a) <= alpha, else abstain; radius 0."""

    alpha: float = 0.001
    n: int = 1000
    name: ClassVar[str] = "predict"

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n", self.n)

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the rank test."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("rank test", self.alpha)
        return ledger.spent

    def conclude(self, state: State) -> Decisions:
        """The rank test; nothing is claimed about probabilities."""
        passed = state["done"] & (rank_test(state["hits"], state["rival"]) <= self.alpha)
        prediction = np.where(passed, state["top"], ABSTAIN).astype(np.int64)
        rows = len(state)
        return Decisions(prediction, np.zeros(rows), np.ones(rows), radius=np.zeros(rows))

    def largest_radius(self, sigma: float) -> float:
        """No radius is claimed."""
        return 0.0

"""Anytime certification: the radius is not known, and stopping is allowed at any look (METHODS 10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from scipy.special import ndtri

from ringfence.errors import ArgumentError
from ringfence.mechanisms import one_sided
from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_share
from ringfence.stats import AlphaLedger, SpendingClopperPearson, look_schedule
from ringfence.types import BoolArray, IntArray, Tally


@final
@dataclass(frozen=True)
class Anytime(Procedure):
    """p_a = max over looks of L(S_k, n_k, alpha_k), alpha_k = alpha/(k(k+1)), looks growing by ratio.

    Valid at every look and for all radii at once, whatever stops it: n draws, seconds per input (that
    look is stored, so it can be verified but not repeated), tolerance (radius known to this relative
    precision), or radii (both bounds in one cell of this grid). beta is for stopping only.
    """

    alpha: float = 0.001
    n0: int = 100
    n: int = 100_000
    tolerance: float = 0.0
    seconds: float | None = None
    radii: tuple[float, ...] = ()
    beta: float = 0.001
    look: int = 100
    ratio: float = 1.5
    name: ClassVar[str] = "anytime"

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_share("beta", self.beta)
        for name in ("n0", "n", "look"):
            check_count(name, getattr(self, name))
        object.__setattr__(self, "radii", tuple(sorted(self.radii)))
        if not 0.0 <= self.tolerance < 1.0:
            raise ArgumentError(
                "tolerance", "must lie in [0, 1)", self.tolerance, "0.02 means within 2% of the radius."
            )
        if self.seconds is not None and not self.seconds > 0:
            raise ArgumentError("seconds", "must be positive", self.seconds, "Leave it out for no time budget.")

    @property
    def spent(self) -> Mapping[str, float]:
        """alpha_k for each of the looks that n allows; the sum over infinitely many would be alpha."""
        ledger = AlphaLedger(self.alpha)
        for k in range(1, len(_looks(self.n, self.look, self.ratio)) + 1):
            ledger.take(f"look {k}", self.alpha / (k * (k + 1)))
        return ledger.spent

    def start(self, rows: int, given: Given) -> State:
        """Nothing known: p_A in [0, 1]; the grid of radii as probabilities."""
        size = (len(self.radii),)
        fields = [("top", "i8"), ("hits", "i8"), ("look", "i4"), ("lower", "f8"), ("upper", "f8"), ("grid", "f8", size)]
        state = new_state(rows, fields)
        state["upper"] = 1.0
        if self.radii:
            state["grid"] = one_sided.probability_for(np.array(self.radii) * given.norm_bound, given.sigma)
        return state

    def request(self, state: State) -> IntArray:
        """n0, then as many draws as the next look needs."""
        looks = _looks(self.n, self.look, self.ratio)
        upcoming = looks[np.minimum(state["look"], len(looks) - 1)]
        wanted = np.where(state["stage"] == 0, self.n0, upcoming - state["drawn"])
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Choose the class; or one look: tighten both bounds."""
        state, votes, rows = state.copy(), tally.votes, np.arange(len(state))
        selecting = state["stage"] == 0
        state["top"] = np.where(selecting, votes.argmax(1), state["top"])
        state["hits"] += np.where(selecting, 0, votes[rows, state["top"]])
        state["drawn"] += np.where(selecting, 0, tally.draws)
        seen = ~selecting
        if seen.any():
            hits, drawn, number = state["hits"][seen], state["drawn"][seen], state["look"][seen] + 1
            lower = SpendingClopperPearson(self.alpha).lower_at_look(hits, drawn, number)
            state["lower"][seen] = np.maximum(state["lower"][seen], lower)
            if self.tolerance > 0 or self.radii:  # nothing else asks for the upper bound, and it costs as much again
                upper = SpendingClopperPearson(self.beta).upper_at_look(hits, drawn, number)
                state["upper"][seen] = np.minimum(state["upper"][seen], upper)
        last = state["look"] == len(_looks(self.n, self.look, self.ratio)) - 1
        state["done"] = seen & (last | self._enough(state))
        state["look"] += seen & ~state["done"]
        state["stage"] = 1
        return state

    def conclude(self, state: State) -> Decisions:
        """The best lower bound so far."""
        return Decisions(state["top"].astype(np.int64), state["lower"].copy(), 1.0 - state["lower"])

    def largest_radius(self, sigma: float) -> float:
        """If all draws agree up to the last look."""
        looks = _looks(self.n, self.look, self.ratio)
        number = np.arange(1, len(looks) + 1)
        return float(sigma * ndtri(SpendingClopperPearson(self.alpha).lower_at_look(looks, looks, number).max()))

    def _enough(self, state: State) -> BoolArray:
        """Rows where further draws would change nothing that was asked for."""
        enough = np.zeros(len(state), bool)
        if self.tolerance > 0:
            low, high = ndtri(state["lower"]), np.minimum(ndtri(state["upper"]), 40.0)  # finite: no inf - inf
            enough |= (state["upper"] <= 0.5) | ((low > 0) & (high - low <= self.tolerance * high))
        if self.radii:
            # Both bounds in one cell: as many radii of the grid lie below the one as below the other.
            below = (state["grid"] <= state["lower"][:, None]).sum(1)
            above = (state["grid"] <= state["upper"][:, None]).sum(1)
            enough |= below == above
        return enough


@lru_cache(maxsize=64)
def _looks(n: int, look: int, ratio: float) -> IntArray:
    """The schedule, computed once per setting."""
    return look_schedule(n, look, ratio)

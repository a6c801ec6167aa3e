"""Anytime certification: the radius is not known, and stopping is allowed at any look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.base import Decisions, Given, State, new_state
from ringfence.procedures.predict import Voted
from ringfence.settings import count, distance, setting, share
from ringfence.stats import AlphaLedger, SpendingClopperPearson, look_schedule
from ringfence.types import BoolArray, IntArray, Tally


@final
@dataclass(frozen=True)
class Anytime(Voted):
    """p_a = max over looks of L(S_k, n_k, alpha_k), alpha_k = alpha/(k(k+1)), looks growing by ratio.

    Valid at every look and for all radii at once, whatever stops it: n draws, seconds per input (that
    look is stored, so it can be verified but not repeated), tolerance (radius known to this relative
    precision), or radii (both bounds in one cell of this grid). beta is for stopping only.
    """

    alpha: float = share(0.001, help="Failure probability per input.")
    n0: int = count(100, help="Draws that choose the class.")
    n: int = count(100_000, help="Draws that bound it, at most.")
    tolerance: float = setting(0.0, help="Stop once the radius is known this well, e.g. 0.02.", low=0, below=1)
    seconds: float | None = setting(None, help="Stop after this time per input.", above=0)
    radii: tuple[float, ...] = distance((), help="Stop once no radius of this grid is in doubt.")
    beta: float = share(0.001, help="Error of the upper bound, which only stops the drawing.")
    look: int = count(100, help="Draws up to the first look.")
    ratio: float = setting(1.5, help="Growth from look to look.", low=1)
    name: ClassVar[str] = "anytime"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "radii", tuple(sorted(self.radii)))

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
            state["grid"] = given.probability_for(np.array(self.radii))
        return state

    def request(self, state: State) -> IntArray:
        """n0, then as many draws as the next look needs."""
        looks = _looks(self.n, self.look, self.ratio)
        upcoming = looks[np.minimum(state["look"], len(looks) - 1)]
        wanted = np.where(state["stage"] == 0, self.n0, upcoming - state["drawn"])
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally, given: Given) -> State:
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
        state["done"] = seen & (last | self._enough(state, given))
        state["look"] += seen & ~state["done"]
        state["stage"] = 1
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The best lower bound so far."""
        return Decisions(state["top"].astype(np.int64), state["lower"].copy(), 1.0 - state["lower"])

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all draws agree up to the last look."""
        looks = _looks(self.n, self.look, self.ratio)
        number = np.arange(1, len(looks) + 1)
        lower = float(SpendingClopperPearson(self.alpha).lower_at_look(looks, looks, number).max())
        return lower, 1.0 - lower

    @property
    def most_draws(self) -> int:
        """n0, and the last look."""
        return self.n0 + int(_looks(self.n, self.look, self.ratio)[-1])

    @property
    def stops_early(self) -> bool:
        """At a precision, a time or a grid of radii, where one is set."""
        return self.tolerance > 0 or self.seconds is not None or bool(self.radii)

    def expected_draws(self, p: float, given: Given) -> float | None:
        """Not known where something may stop it early."""
        return None if self.stops_early else float(self.most_draws)

    @property
    def sources(self) -> tuple[str, ...]:
        """Alpha divided over the looks."""
        return ("dunn1961",)

    def _enough(self, state: State, given: Given) -> BoolArray:
        """Rows where further draws would change nothing that was asked for."""
        enough = np.zeros(len(state), bool)
        if self.tolerance > 0:
            low, high = (given.mechanism(p, 1.0 - p, given.law.unit) for p in (state["lower"], state["upper"]))
            high = np.minimum(high, 40.0)  # finite: no inf - inf
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

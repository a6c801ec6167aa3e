"""ACES at a known radius: exact group-sequential tests on the selector and on the class (METHODS 7 and 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, final

import numpy as np

from ringfence.mechanisms import one_sided
from ringfence.procedures.aces import core_class
from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_radius, check_reachable, check_share
from ringfence.procedures.sequential import Sequential
from ringfence.stats import AlphaLedger, group_sequential_design
from ringfence.types import ABSTAIN, IntArray, Tally

CERTIFY, CORE_ALONE, CORE_OR_CLASS = 0, 1, 2
"""What is tested: bit 1 and the class at the radius; bit 0 at 1/2; or bit 0 and the class at 1/2, either suffices."""


class _Tables(NamedTuple):
    """looks (K,), and for the three cases (3, K) the counts at which a test certifies or gives up."""

    looks: IntArray
    certify_at: IntArray
    give_up_at: IntArray


@final
@dataclass(frozen=True)
class AcesSequential(Procedure):
    """n0 draws pick the selector's bit s and a class c; then looks fixed beforehand, as in ``sequential``.

    s=1: the tests "p_S > Phi(r/sigma)" and "p_c > Phi(r/sigma)", each at alpha, must both cross: c, radius r (the
    claim is false only if the test of a false hypothesis crosses). If only the class crosses and the core says c:
    c, radius 0. s=0: the test "p_S > 1/2" at alpha, or, where the core says c, it and "p_c > 1/2" at alpha/2
    each, one of which must cross: the core's class, radius 0. beta costs power, never soundness.
    """

    radius: float
    alpha: float = 0.001
    beta: float = 0.001
    n0: int = 100
    n: int = 110_000
    look: int = 100
    ratio: float | None = None
    name: ClassVar[str] = "aces-sequential"
    needs: ClassVar[tuple[str, ...]] = ("selection",)

    def __post_init__(self) -> None:
        check_radius("radius", self.radius)
        check_share("alpha", self.alpha)
        check_share("beta", self.beta)
        for name in ("n0", "n", "look"):
            check_count(name, getattr(self, name))

    @property
    def target(self) -> float:
        """The radius asked about."""
        return self.radius

    @property
    def spent(self) -> Mapping[str, float]:
        """One budget for the one test whose crossing would make the claim false."""
        ledger = AlphaLedger(self.alpha)
        ledger.take("selection or class, whichever decides", self.alpha)
        return ledger.spent

    def start(self, rows: int, given: Given) -> State:
        """The core's class is known; p0 = Phi(r/sigma) rounded up."""
        largest = self.largest_radius(given.sigma) / given.norm_bound
        check_reachable(self.radius, largest, given.sigma, "Raise n or sigma.")
        numbers = [(name, "i8") for name in ("core", "bit", "top", "picks", "hits")]
        flags = [(name, "?") for name in ("selected", "classified")]
        state = new_state(rows, [*numbers, *flags, ("look", "i4"), ("p0", "f8")])
        state["core"] = core_class(rows, given)
        state["p0"] = one_sided.probability_for(self.radius * given.norm_bound, given.sigma)
        return state

    def request(self, state: State) -> IntArray:
        """n0, then as many draws as the next look needs."""
        if not len(state):
            return np.zeros(0, np.int64)
        looks = self._tables(state).looks
        upcoming = looks[np.minimum(state["look"], len(looks) - 1)]
        wanted = np.where(state["stage"] == 0, self.n0, upcoming - state["drawn"])
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Choose bit and class; or one look: integer comparisons for all rows at once."""
        state, rows = state.copy(), np.arange(len(state))
        if not len(state):
            return state
        votes, bits, choosing = tally.votes, tally.cells["bits"], state["stage"] == 0
        state["bit"] = np.where(choosing, bits[:, 0] <= bits[:, 1], state["bit"])
        state["top"] = np.where(choosing, votes.argmax(1), state["top"])
        state["picks"] += np.where(choosing, 0, bits[rows, state["bit"]])
        state["hits"] += np.where(choosing, 0, votes[rows, state["top"]])
        state["drawn"] += np.where(choosing, 0, tally.draws)
        tables, case, look, seen = self._tables(state), _cases(state), state["look"], ~choosing
        needed, hopeless = tables.certify_at[case, look], tables.give_up_at[case, look]
        state["selected"] |= seen & (state["picks"] >= needed)
        state["classified"] |= seen & (state["hits"] >= needed)
        lost_bit = ~state["selected"] & (state["picks"] <= hopeless)
        lost_class = ~state["classified"] & (state["hits"] <= hopeless)
        won = np.where(case == CERTIFY, state["selected"] & state["classified"], state["selected"])
        won |= (case == CORE_OR_CLASS) & state["classified"]
        lost = np.select(
            [case == CERTIFY, case == CORE_ALONE], [lost_bit | lost_class, lost_bit], lost_bit & lost_class
        )
        state["done"] = seen & (won | lost | (look == len(tables.looks) - 1))
        state["look"] += seen & ~state["done"]
        state["stage"] = 1
        return state

    def conclude(self, state: State) -> Decisions:
        """The class at the radius, an answer without a radius, or nothing."""
        case, agree = _cases(state), state["core"] == state["top"]
        seen = state["drawn"] > 0
        certified = seen & (case == CERTIFY) & state["selected"] & state["classified"]
        agreed = seen & (case != CORE_ALONE) & state["classified"] & agree
        to_core = seen & (case != CERTIFY) & state["selected"]
        prediction = np.where(certified | agreed, state["top"], np.where(to_core, state["core"], ABSTAIN))
        p_a = np.where(certified, state["p0"], 0.0)
        return Decisions(prediction.astype(np.int64), p_a, 1.0 - p_a, np.where(certified, self.radius, 0.0))

    def largest_radius(self, sigma: float) -> float:
        """As for ``sequential``: all draws agree."""
        return Sequential(self.radius, self.alpha, self.beta, self.n0, self.n, self.look).largest_radius(sigma)

    def _tables(self, state: State) -> _Tables:
        ratio = self.ratio if self.ratio is not None else 1.1 if self.look < 1000 else 1.25
        return _tables(float(state["p0"][0]), self.alpha, self.beta, self.n, self.look, ratio)


def _cases(state: State) -> IntArray:
    """Which of the three cases each row is, fixed by the n0 draws and the core's class."""
    no_radius = np.where(state["core"] == state["top"], CORE_OR_CLASS, CORE_ALONE)
    return np.where(state["bit"] == 1, CERTIFY, no_radius)


@lru_cache(maxsize=64)
def _tables(p0: float, alpha: float, beta: float, n: int, look: int, ratio: float) -> _Tables:
    """The three designs side by side; they share their looks."""
    levels = ((p0, alpha), (0.5, alpha), (0.5, alpha / 2))
    designs = [group_sequential_design(p, level, beta, n, look, ratio) for p, level in levels]
    certify_at = np.stack([design.certify_at for design in designs])
    return _Tables(designs[0].looks, certify_at, np.stack([design.give_up_at for design in designs]))

"""ACES at a known radius: exact group-sequential tests on the selector and on the class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from ringfence.procedures.aces import AcesProcedure, Form, ProvedBits, core_class, spent_by
from ringfence.procedures.base import Decisions, Given, State
from ringfence.procedures.sequential import SequentialLooks
from ringfence.settings import setting
from ringfence.stats import GroupSequentialDesign
from ringfence.types import ABSTAIN, IntArray, Tally

CERTIFY, CORE_ALONE, CORE_OR_CLASS = 0, 1, 2
"""What is tested: bit 1 and the class at the radius; bit 0 at 1/2; or bit 0 and the class at 1/2, either suffices."""


@final
@dataclass(frozen=True)
class AcesSequential(SequentialLooks, AcesProcedure):
    """n0 draws pick the selector's bit s and a class c; then looks fixed beforehand, as in ``sequential``.

    s=1: the tests "p_S > p0" and "p_c > p0", p0 being the probability that proves the radius, each at alpha, must
    both cross: c, radius r (the claim is false only if the test of a false hypothesis crosses). If only the class
    crosses and the core says c: c, radius 0. s=0: the test "p_S > 1/2" at alpha, or, where the core says c, it and
    "p_c > 1/2" at alpha/2 each, one of which must cross: the core's class, radius 0. beta costs power, never
    soundness. form ``paper``: every test at alpha/2, as Horváth et al. (2022) bound them.
    """

    form: Form = setting("sharp", help="paper: selector and class at alpha/2 each.")
    name: ClassVar[str] = "aces-sequential"

    @property
    def level(self) -> float:
        """alpha for either test; in the paper's form they share it."""
        return self.alpha / 2 if self.form == "paper" else self.alpha

    @property
    def spent(self) -> Mapping[str, float]:
        """One budget for the one test whose crossing would make the claim false, or two halves."""
        return spent_by(self.form, self.alpha)

    def start(self, rows: int, given: Given) -> State:
        """The core's class is known, nothing else."""
        counts = [(name, "i8") for name in ("core", "bit", "picks")]
        state = self._initial_state(rows, given, [*counts, ("selected", "?"), ("classified", "?")])
        state["core"] = core_class(rows, given)
        return state

    def update(self, state: State, tally: Tally, given: Given) -> State:
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
        designs, case, look, seen = self._designs(state), _cases(state), state["look"], ~choosing
        needed = np.stack([one.certify_at for one in designs])[case, look]
        hopeless = np.stack([one.give_up_at for one in designs])[case, look]
        state["selected"] |= seen & (state["picks"] >= needed)
        state["classified"] |= seen & (state["hits"] >= needed)
        lost_bit = ~state["selected"] & (state["picks"] <= hopeless)
        lost_class = ~state["classified"] & (state["hits"] <= hopeless)
        won = np.where(case == CERTIFY, state["selected"] & state["classified"], state["selected"])
        won |= (case == CORE_OR_CLASS) & state["classified"]
        lost = np.select(
            [case == CERTIFY, case == CORE_ALONE], [lost_bit | lost_class, lost_bit], lost_bit & lost_class
        )
        state["done"] = seen & (won | lost | (look == len(designs[0].looks) - 1))
        state["look"] += seen & ~state["done"]
        state["stage"] = 1
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The class at the radius, an answer without a radius, or nothing."""
        case, agree = _cases(state), state["core"] == state["top"]
        seen = state["drawn"] > 0
        certified = seen & (case == CERTIFY) & state["selected"] & state["classified"]
        agreed = seen & (case != CORE_ALONE) & state["classified"] & agree
        to_core = seen & (case != CERTIFY) & state["selected"]
        prediction = np.where(certified | agreed, state["top"], np.where(to_core, state["core"], ABSTAIN))
        p_a = np.where(certified, state["p0"], 0.0)
        return Decisions(prediction.astype(np.int64), p_a, 1.0 - p_a, np.where(certified, self.radius, 0.0))

    def proved_bits(self, state: State, given: Given) -> ProvedBits:
        """The bit whose test crossed; bit 1 within the radius, as far as that was tried."""
        bit = np.where(state["selected"], state["bit"], ABSTAIN)
        return ProvedBits(bit, self.radius * (bit == 1))

    def expected_draws(self, p: float, given: Given) -> float | None:
        """Not known: class and selector stop it together."""
        return None

    @property
    def sources(self) -> tuple[str, ...]:
        """The spending of alpha."""
        return ("lan1983",)

    def _designs(self, state: State) -> tuple[GroupSequentialDesign, ...]:
        """One design per case; they share their looks."""
        p0 = float(state["p0"][0])
        return self.design(p0), self.design(0.5), self.design(0.5, self.alpha / 2)


def _cases(state: State) -> IntArray:
    """Which of the three cases each row is, fixed by the n0 draws and the core's class."""
    no_radius = np.where(state["core"] == state["top"], CORE_OR_CLASS, CORE_ALONE)
    return np.where(state["bit"] == 1, CERTIFY, no_radius)

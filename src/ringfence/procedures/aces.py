"""ACES with a fixed number of draws: CERTIFY and PREDICT of Horváth et al. (2022), corrected.

The claims are about F(x) = smoothed certify(x) where the smoothed selector says 1, else core(x). Tallies bring
``votes`` of the certification network and ``bits`` (core, certify, invalid) of the selector, from the same draws.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np

from ringfence.procedures.base import ChooseThenBound, Decisions, Given, Procedure, State, new_state, strongest_rival
from ringfence.procedures.predict import Predictor
from ringfence.settings import count, setting, share
from ringfence.stats import AlphaLedger, clopper_pearson_lower, clopper_pearson_upper, rank_test, rank_test_one_sided
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray, Tally

Form = Literal["sharp", "paper"]


class ProvedBits(NamedTuple):
    """bit (rows,): which side the selector proves to choose, ABSTAIN where neither; radius: within which it stays."""

    bit: IntArray
    radius: FloatArray


class Components(NamedTuple):
    """Lower bounds (rows,) at alpha/2 on the class chosen and on the bit chosen, each as if it stood alone."""

    chosen: IntArray
    chosen_bound: FloatArray
    bit: IntArray
    bit_bound: FloatArray


class AcesProcedure(Procedure):
    """About F(x) = smoothed certify(x) where the smoothed selector says 1, else core(x)."""

    form: Form
    needs: ClassVar[tuple[str, ...]] = ("selection",)
    knows: ClassVar[tuple[str, ...]] = ("core",)

    @property
    def reads(self) -> tuple[str, ...]:
        """Class and selector are counted by one readout."""
        return "votes", "bits"

    @abstractmethod
    def proved_bits(self, state: State, given: Given) -> ProvedBits:
        """What is proved about the selector alone."""

    def components(self, state: State) -> Components | None:
        """Class and selector evaluated apart; None where the number of draws was not fixed."""
        return None

    def predictor(self, draws: int) -> Procedure:
        """PREDICT for ACES, at the same alpha and in the same form."""
        return AcesPredict(self.alpha, draws, self.form)


def spent_by(form: Form, alpha: float) -> Mapping[str, float]:
    """The paper's union bound: half for the selector, half for the class; the sharp form: one budget for both.

    In the sharp form only one bound could make the claim false, the one on the side that decides.
    """
    ledger = AlphaLedger(alpha)
    if form == "paper":
        ledger.take("selection", alpha / 2)
        ledger.take("class", ledger.left)
    else:
        ledger.take("selection or class, whichever decides", alpha)
    return ledger.spent


def core_class(rows: int, given: Given) -> IntArray:
    """The core network's class (rows,); where it is unknown, ABSTAIN, so that nothing is claimed from it."""
    return np.asarray(given.facts.get("core", np.full(rows, ABSTAIN)), np.int64)


@final
@dataclass(frozen=True)
class AcesCertify(ChooseThenBound, AcesProcedure):
    """n0 draws pick the selector's bit s and a class c; n fresh draws bound both.

    s=1 and both radii positive: c with the smaller of the two radii. s=0 and selected: the core's class, radius
    0. Otherwise, where class c is certain and the core says c too: c, radius 0. Otherwise nothing.

    form ``paper`` bounds selector and class at alpha/2 each. ``sharp`` also fails at most at alpha:
    s=1: a claim is false only if the bound on whichever radius is truly smaller fails, so both may use alpha;
    s=0, core other than c: only the selector's bound is used, at alpha;
    s=0, core equal to c: either bound alone leads to the claim, alpha/2 each.
    lower_share below 1 gives the rest of the class's share to an upper bound on its rivals (as in two-sided).
    """

    n0: int = count(100, help="Draws that choose class and side.")
    n: int = count(100_000, help="Draws that bound them.")
    form: Form = setting("sharp", help="paper: selector and class at alpha/2 each.")
    lower_share: float = setting(1.0, help="Share of the class's level for its lower bound.", low=1e-9, high=1)
    name: ClassVar[str] = "aces"

    @property
    def spent(self) -> Mapping[str, float]:
        """Two halves; in the sharp form one budget for the one bound whose failure would make the claim false."""
        return spent_by(self.form, self.alpha)

    def start(self, rows: int, given: Given) -> State:
        """The core's class is known, nothing else."""
        counted = [(name, "i8") for name in ("core", "bit", "top", "picks", "hits", "rival")]
        state = new_state(rows, counted)
        state["core"] = core_class(rows, given)
        return state

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Choose bit and class, or count them."""
        state, rows = state.copy(), np.arange(len(state))
        votes, bits = tally.cells["votes"], tally.cells["bits"]
        choosing = state["stage"] == 0
        state["bit"] = np.where(choosing, bits[:, 0] <= bits[:, 1], state["bit"])
        state["top"] = np.where(choosing, tally.votes.argmax(1), state["top"])
        state["picks"] = np.where(choosing, 0, bits[rows, state["bit"]])
        state["hits"] = np.where(choosing, 0, votes[rows, state["top"]])
        state["rival"] = np.where(choosing, 0, strongest_rival(votes, state["top"]))
        state["drawn"] = np.where(choosing, 0, tally.draws)
        state["done"] = ~choosing
        state["stage"] = 1
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """Class or core's class, and the smaller radius; p_a and p_b are the bounds that give it."""
        select, chosen, rival = self.bounds(state)
        certify, agree = state["bit"] == 1, state["core"] == state["top"]
        radius_of_class, radius_of_bit = _radius(chosen, rival, given), _radius(select, 1.0 - select, given)
        certified = certify & (radius_of_class > 0) & (radius_of_bit > 0)
        to_core = ~certify & (select > 0.5)
        agreed = ~certified & ~to_core & agree & (radius_of_class > 0)
        prediction = np.where(certified | agreed, state["top"], np.where(to_core, state["core"], ABSTAIN))
        by_class = radius_of_class <= radius_of_bit
        p_a = np.where(certified, np.where(by_class, chosen, select), 0.0)
        p_b = np.where(certified, np.where(by_class, rival, 1.0 - select), 1.0)
        radius = np.where(certified, np.minimum(radius_of_class, radius_of_bit), 0.0)
        return Decisions(prediction.astype(np.int64), p_a, p_b, radius)

    def bounds(self, state: State) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Lower bounds (rows,) on the bit and the class, and an upper bound on every other class."""
        rows, done = len(state), state["done"]
        select, chosen, rival = np.zeros(rows), np.zeros(rows), np.ones(rows)
        half = self._halved(state)
        for level, at in ((self.alpha / 2, done & half), (self.alpha, done & ~half)):
            if at.any():
                select[at] = clopper_pearson_lower(state["picks"][at], self.n, level)
                chosen[at] = clopper_pearson_lower(state["hits"][at], self.n, level * self.lower_share)
                rival[at] = 1.0 - chosen[at]
                if self.lower_share < 1:
                    rest = level * (1 - self.lower_share)
                    rival[at] = np.minimum(rival[at], clopper_pearson_upper(state["rival"][at], self.n, rest))
        return select, chosen, rival

    def proved_bits(self, state: State, given: Given) -> ProvedBits:
        """The bit that the first draws chose, where its bound proves it."""
        return proved(state["bit"], self.bounds(state)[0], given)

    def components(self, state: State) -> Components:
        """Both at alpha/2."""
        chosen, bit = (clopper_pearson_lower(state[name], self.n, self.alpha / 2) for name in ("hits", "picks"))
        return Components(state["top"], chosen, state["bit"], bit)

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all draws agree."""
        level = self.alpha * self.lower_share * (0.5 if self.form == "paper" else 1.0)
        lower = float(clopper_pearson_lower(self.n, self.n, level))
        return lower, 1.0 - lower

    def _halved(self, state: State) -> BoolArray:
        """Rows (rows,) whose two bounds share alpha."""
        either = (state["bit"] == 0) & (state["core"] == state["top"])
        return np.asarray(either | (self.form == "paper"))


@final
@dataclass(frozen=True)
class AcesPredict(Predictor, AcesProcedure):
    """F(x) without a radius, from n draws and tests (algorithm 4 of the paper, with AND where it prints OR).

    The bit is tested one-sided against 1/2 (its two values are fixed beforehand), the class by the two-sided rank
    test. Bit 1 and the class pass: the class. Bit 0 passes: the core's class. Otherwise the class if it passes and
    the core agrees. form ``paper``: alpha/2 each. ``sharp``: where the truth is 0 only a passing bit 1 can
    mislead, so it may use alpha; where the truth is 1 only a passing bit 0 or a wrong class can, alpha/2 each.
    """

    alpha: float = share(0.001, help="Failure probability per input.")
    n: int = count(1000, help="Draws per input.")
    form: Form = setting("sharp", help="paper: selector and class at alpha/2 each.")
    name: ClassVar[str] = "aces-predict"

    @property
    def spent(self) -> Mapping[str, float]:
        """Two halves; the sharp form spends alpha on bit 1 instead where the truth is 0."""
        return spent_by("paper", self.alpha)

    def start(self, rows: int, given: Given) -> State:
        """The core's class is known, nothing else."""
        state = new_state(rows, [("core", "i8"), ("top", "i8"), ("hits", "i8"), ("rival", "i8"), ("bits", "i8", (2,))])
        state["core"] = core_class(rows, given)
        return state

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Keep the two largest counts and both bits."""
        state = super().update(state, tally, given)
        state["bits"] = tally.cells["bits"][:, :2]
        return state

    def conclude(self, state: State, given: Given) -> Decisions:
        """The tests."""
        bit, sure = self.bits(state), state["done"] & (rank_test(state["hits"], state["rival"]) <= self.alpha / 2)
        by_class = sure & ((bit == 1) | ((bit != 0) & (state["core"] == state["top"])))
        return self.answered(np.where(by_class, state["top"], np.where(bit == 0, state["core"], ABSTAIN)))

    def claim(self, norm: str) -> str:
        """About the answer alone."""
        return "each answer is that of the network which the smoothed selector chooses"

    def proved_bits(self, state: State, given: Given) -> ProvedBits:
        """The bit whose test passes; no radius was tried."""
        return ProvedBits(self.bits(state), np.zeros(len(state)))

    def bits(self, state: State) -> IntArray:
        """The bit (rows,) whose test passes, ABSTAIN where neither does; invalid draws count against both.

        P(Bin(n, 1/2) >= count) <= level: is the bit the more probable one?
        """
        zero, one = (rank_test_one_sided(count, state["drawn"] - count) for count in state["bits"].T)
        level = self.alpha / 2 if self.form == "paper" else self.alpha
        passed = np.where(one <= level, 1, np.where(zero <= self.alpha / 2, 0, ABSTAIN))
        return np.where(state["done"], passed, ABSTAIN)


def proved(chosen: IntArray, lower: FloatArray, given: Given) -> ProvedBits:
    """The choice where its lower bound (rows,) proves it, and the radius within which it stays."""
    radius = _radius(lower, 1.0 - lower, given)
    return ProvedBits(np.where(radius > 0, chosen, ABSTAIN), radius)


def _radius(p_a: FloatArray, p_b: FloatArray, given: Given) -> FloatArray:
    """Radius (rows,) of one smoothed component, rounded down."""
    return given.mechanism(p_a, p_b, given.law.unit) * (given.law.scale / given.norm_bound) * (1 - 1e-9)

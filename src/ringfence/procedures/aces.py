"""ACES with a fixed number of draws: CERTIFY and PREDICT of Horvath et al. 2022 (ACES), with corrections.

The claims are about F(x) = smoothed certify(x) where the smoothed selector says 1, else core(x). Tallies bring
``votes`` of the certification network and ``bits`` (core, certify, invalid) of the selector, from the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from scipy.special import ndtri

from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_share
from ringfence.stats import AlphaLedger, clopper_pearson_lower, clopper_pearson_upper, rank_test, rank_test_one_sided
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray, Tally

Form = Literal["sharp", "paper"]
FORMS = ("sharp", "paper")


def check_form(form: str) -> None:
    """The two accountings of alpha; both are sound."""
    if form not in FORMS:
        raise ArgumentError("form", f"must be one of {', '.join(FORMS)}", repr(form), "sharp proves more.")


def spent_by(form: Form, alpha: float) -> Mapping[str, float]:
    """ACES's union bound: half for the selector, half for the class; the sharp form: one budget for both.

    In the sharp form only one bound could make the claim false, the one on the side that decides (METHODS 7).
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
class AcesCertify(Procedure):
    """n0 draws pick the selector's bit s and a class c; n fresh draws bound both.

    s=1 and both radii positive: c with the smaller of the two radii. s=0 and selected: the core's class, radius
    0. Otherwise, where class c is certain and the core says c too: c, radius 0. Otherwise nothing.

    form ``paper`` bounds selector and class at alpha/2 each. ``sharp`` also fails at most at alpha:
    s=1: a claim is false only if the bound on whichever radius is truly smaller fails, so both may use alpha;
    s=0, core other than c: only the selector's bound is used, at alpha;
    s=0, core equal to c: either bound alone leads to the claim, alpha/2 each.
    lower_share below 1 gives the rest of the class's share to an upper bound on its rivals (as in two-sided).
    """

    alpha: float = 0.001
    n0: int = 100
    n: int = 100_000
    form: Form = "sharp"
    lower_share: float = 1.0
    name: ClassVar[str] = "aces"
    needs: ClassVar[tuple[str, ...]] = ("selection",)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n0", self.n0)
        check_count("n", self.n)
        check_form(self.form)
        if not 0.0 < self.lower_share <= 1.0:
            raise ArgumentError("lower_share", "must lie in (0, 1]", self.lower_share, "1 bounds the class alone.")

    @property
    def spent(self) -> Mapping[str, float]:
        """Two halves; in the sharp form one budget for the one bound whose failure would make the claim false."""
        return spent_by(self.form, self.alpha)

    def start(self, rows: int, given: Given) -> State:
        """The core's class is known, nothing else; scale = sigma / lift norm."""
        counted = [(name, "i8") for name in ("core", "bit", "top", "picks", "hits", "rival")]
        state = new_state(rows, [*counted, ("scale", "f8")])
        state["core"] = core_class(rows, given)
        state["scale"] = given.sigma / given.norm_bound
        return state

    def request(self, state: State) -> IntArray:
        """n0, then n, then nothing."""
        wanted = np.where(state["stage"] == 0, self.n0, self.n)
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Choose bit and class, or count them."""
        state, rows = state.copy(), np.arange(len(state))
        votes, bits = tally.cells["votes"], tally.cells["bits"]
        choosing = state["stage"] == 0
        state["bit"] = np.where(choosing, bits[:, 0] <= bits[:, 1], state["bit"])
        state["top"] = np.where(choosing, tally.votes.argmax(1), state["top"])
        others = votes.copy()  # an invalid score is an outcome too, and a rival of every class
        others[rows, state["top"]] = -1
        state["picks"] = np.where(choosing, 0, bits[rows, state["bit"]])
        state["hits"] = np.where(choosing, 0, votes[rows, state["top"]])
        state["rival"] = np.where(choosing, 0, others.max(1))
        state["drawn"] = np.where(choosing, 0, tally.draws)
        state["done"] = ~choosing
        state["stage"] = 1
        return state

    def conclude(self, state: State) -> Decisions:
        """Class or core's class, and the smaller radius; p_a and p_b are the bounds that give it."""
        select, chosen, rival = self.bounds(state)
        certify, agree = state["bit"] == 1, state["core"] == state["top"]
        radius_of_class = _radius(chosen, rival, state["scale"])
        radius_of_bit = _radius(select, 1.0 - select, state["scale"])
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

    def largest_radius(self, sigma: float) -> float:
        """If all draws agree."""
        share = self.lower_share * (0.5 if self.form == "paper" else 1.0)
        return float(sigma * ndtri(clopper_pearson_lower(self.n, self.n, self.alpha * share)))

    def _halved(self, state: State) -> BoolArray:
        """Rows (rows,) whose two bounds share alpha."""
        either = (state["bit"] == 0) & (state["core"] == state["top"])
        return np.asarray(either | (self.form == "paper"))


@final
@dataclass(frozen=True)
class AcesPredict(Procedure):
    """F(x) without a radius, from n draws and tests (ACES, algorithm 4, with AND where it prints OR).

    The bit is tested one-sided against 1/2 (its two values are fixed beforehand), the class by the two-sided rank
    test. Bit 1 and the class pass: the class. Bit 0 passes: the core's class. Otherwise the class if it passes and
    the core agrees. form ``paper``: alpha/2 each. ``sharp``: where the truth is 0 only a passing bit 1 can
    mislead, so it may use alpha; where the truth is 1 only a passing bit 0 or a wrong class can, alpha/2 each.
    """

    alpha: float = 0.001
    n: int = 1000
    form: Form = "sharp"
    name: ClassVar[str] = "aces-predict"
    needs: ClassVar[tuple[str, ...]] = ("selection",)

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n", self.n)
        check_form(self.form)

    @property
    def spent(self) -> Mapping[str, float]:
        """Two halves; the sharp form spends alpha on bit 1 instead where the truth is 0."""
        return spent_by("paper", self.alpha)

    def start(self, rows: int, given: Given) -> State:
        """The core's class is known, nothing else."""
        state = new_state(rows, [("core", "i8"), ("top", "i8"), ("hits", "i8"), ("rival", "i8"), ("bits", "i8", (2,))])
        state["core"] = core_class(rows, given)
        return state

    def request(self, state: State) -> IntArray:
        """n draws, once."""
        return np.where(state["done"], 0, self.n).astype(np.int64)

    def update(self, state: State, tally: Tally) -> State:
        """Keep the two largest counts and both bits."""
        state, rows = state.copy(), np.arange(len(state))
        state["top"] = tally.votes.argmax(1)
        others = tally.cells["votes"].copy()
        state["hits"] = others[rows, state["top"]]
        others[rows, state["top"]] = -1
        state["rival"] = others.max(1)
        state["bits"] = tally.cells["bits"][:, :2]
        state["drawn"] = tally.draws
        state["done"] = True
        return state

    def conclude(self, state: State) -> Decisions:
        """The tests; nothing is claimed about probabilities."""
        bit, sure = self.bits(state), state["done"] & (rank_test(state["hits"], state["rival"]) <= self.alpha / 2)
        by_class = sure & ((bit == 1) | ((bit != 0) & (state["core"] == state["top"])))
        answer = np.where(by_class, state["top"], np.where(bit == 0, state["core"], ABSTAIN))
        prediction = answer.astype(np.int64)
        rows = len(state)
        return Decisions(prediction, np.zeros(rows), np.ones(rows), radius=np.zeros(rows))

    def largest_radius(self, sigma: float) -> float:
        """No radius is claimed."""
        return 0.0

    def bits(self, state: State) -> IntArray:
        """The bit (rows,) whose test passes, ABSTAIN where neither does; invalid draws count against both.

        P(Bin(n, 1/2) >= count) <= level: is the bit the more probable one?
        """
        zero, one = (rank_test_one_sided(count, state["drawn"] - count) for count in state["bits"].T)
        level = self.alpha / 2 if self.form == "paper" else self.alpha
        passed = np.where(one <= level, 1, np.where(zero <= self.alpha / 2, 0, ABSTAIN))
        return np.where(state["done"], passed, ABSTAIN)


def _radius(p_a: FloatArray, p_b: FloatArray, scale: FloatArray) -> FloatArray:
    """Radius (rows,) of one smoothed component, rounded down."""
    return neyman_pearson(p_a, p_b, 1.0) * scale * (1 - 1e-9)

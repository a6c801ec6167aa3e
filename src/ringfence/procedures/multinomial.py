"""Multinomial certification: the class and its bounds from the SAME n draws (Cullen et al. 2022, algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
from scipy.special import ndtri

from ringfence.errors import ArgumentError
from ringfence.procedures.base import Decisions, State
from ringfence.procedures.checks import check_count, check_share
from ringfence.procedures.top_two import TopTwo
from ringfence.stats import AlphaLedger, ClopperPearson, rank_test
from ringfence.types import ABSTAIN

Form = Literal["two-sided", "one-sided", "paper"]
FORMS = ("two-sided", "one-sided", "paper")


@final
@dataclass(frozen=True)
class Multinomial(TopTwo):
    """No draws are set aside to choose the class, so the bounds must pay for the choice.

    two-sided: L(top, alpha/4), U(second, alpha/4), and the rank test must pass at alpha/2 (proved: if the top
    class is the true one, one fixed rival and one fixed class are bounded; if not, the test errs).
    one-sided: L(top, alpha/2), p_b = 1 - p_a (proved for every K: "more than half" happens to one class only).
    paper: L(top, alpha/2), U(second, alpha/2), no test: no counter-example is known, and no proof.
    """

    alpha: float = 0.001
    n: int = 100_000
    form: Form = "two-sided"
    name: ClassVar[str] = "multinomial"

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_count("n", self.n)
        if self.form not in FORMS:
            raise ArgumentError("form", f"must be one of {', '.join(FORMS)}", repr(self.form), "two-sided is sound.")

    @property
    def sound(self) -> bool:
        """The paper's form is not proved."""
        return self.form != "paper"

    @property
    def spent(self) -> Mapping[str, float]:
        """What each form pays for."""
        ledger = AlphaLedger(self.alpha)
        if self.form == "two-sided":
            ledger.take("rank test", self.alpha / 2)
        ledger.take("lower bound", self.alpha / (4 if self.form == "two-sided" else 2))
        # One-sided at alpha/2 fails at up to alpha: the other half pays for choosing the class.
        ledger.take("choice of the class" if self.form == "one-sided" else "upper bound", ledger.left)
        return ledger.spent

    def conclude(self, state: State) -> Decisions:
        """The top class with its bounds, or nothing where the rank test fails."""
        spent, done = self.spent, state["done"]
        p_a, p_b = np.zeros(len(state)), np.ones(len(state))
        p_a[done] = ClopperPearson(spent["lower bound"]).lower_at_fixed_n(state["hits"][done], self.n)
        p_b[done] = 1.0 - p_a[done]
        if self.form != "one-sided":
            upper = ClopperPearson(spent["upper bound"]).upper_at_fixed_n(state["rival"][done], self.n)
            p_b[done] = np.minimum(p_b[done], upper)
        claimed = done.copy()
        if self.form == "two-sided":
            claimed &= rank_test(state["hits"], state["rival"]) <= spent["rank test"]
        return Decisions(np.where(claimed, state["top"], ABSTAIN).astype(np.int64), p_a, p_b)

    def largest_radius(self, sigma: float) -> float:
        """If all n draws agree."""
        lower = ClopperPearson(self.spent["lower bound"]).lower_at_fixed_n(np.array([self.n]), self.n)
        return float(sigma * ndtri(lower[0]))

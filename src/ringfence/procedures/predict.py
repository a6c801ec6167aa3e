"""The class from all of n draws at once: PREDICT of Cohen et al. 2019, without a radius, and the multinomial
certification of Cullen et al. 2024 (algorithm 1), with bounds from the SAME draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np

from ringfence.procedures.base import Decisions, Given, Procedure, State, new_state, strongest_rival
from ringfence.settings import count, setting, share
from ringfence.stats import AlphaLedger, ClopperPearson, rank_test
from ringfence.types import ABSTAIN, FloatArray, IntArray, Tally


class TopTwo(Procedure):
    """n draws at once give the top class and its strongest rival; stage 0 is the only one."""

    n: int

    def start(self, rows: int, given: Given) -> State:
        """Nothing counted."""
        return new_state(rows, [("top", "i8"), ("hits", "i8"), ("rival", "i8")])

    def request(self, state: State) -> IntArray:
        """n draws, once."""
        return np.where(state["done"], 0, self.n).astype(np.int64)

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Keep the largest count and the largest of the others."""
        state = state.copy()
        state["top"] = tally.votes.argmax(1)
        state["hits"] = tally.votes[np.arange(len(state)), state["top"]]
        state["rival"] = strongest_rival(tally.cells["votes"], state["top"])
        state["drawn"] = tally.draws
        state["done"] = True
        return state

    @property
    def most_draws(self) -> int:
        """n."""
        return self.n


class Predictor(TopTwo):
    """An answer without a radius; nothing is claimed about probabilities."""

    @property
    def best_bounds(self) -> tuple[float, float]:
        """No radius is claimed."""
        return 0.0, 1.0

    def predictor(self, draws: int) -> Procedure:
        """Itself."""
        return self

    def answered(self, prediction: IntArray) -> Decisions:
        """The answers (rows,) alone."""
        none = np.zeros(len(prediction))
        return Decisions(prediction.astype(np.int64), none, 1.0 - none, radius=none)


@final
@dataclass(frozen=True)
class Predict(Predictor):
    """The top class if 2*P(Bin(n_a + n_b, 1/2) >= n_a) <= alpha, else abstain; radius 0."""

    alpha: float = share(0.001, help="Failure probability per input.")
    n: int = count(1000, help="Draws per input.")
    name: ClassVar[str] = "predict"

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the rank test."""
        return AlphaLedger.shared(self.alpha, ("rank test", self.alpha))

    def conclude(self, state: State, given: Given) -> Decisions:
        """The rank test."""
        passed = state["done"] & (rank_test(state["hits"], state["rival"]) <= self.alpha)
        return self.answered(np.where(passed, state["top"], ABSTAIN))

    def can_answer(self, given: Given) -> bool:
        """Whether so many draws for one class pass the rank test."""
        return bool(rank_test(np.array([self.n]), np.array([0]))[0] <= self.alpha)

    def claim(self, norm: str) -> str:
        """About the class alone."""
        return "each answer is the smoothed classifier's most probable class"


class Voted(Procedure):
    """About the class that most noisy copies vote for, which is what PREDICT answers."""

    def predictor(self, draws: int) -> Procedure:
        """PREDICT at the same alpha."""
        return Predict(self.alpha, draws)


Form = Literal["two-sided", "one-sided", "paper"]


@final
@dataclass(frozen=True)
class Multinomial(TopTwo, Voted):
    """No draws are set aside to choose the class, so the bounds must pay for the choice.

    two-sided: L(top, alpha/4), U(second, alpha/4), and the rank test must pass at alpha/2 (proved: if the top
    class is the true one, one fixed rival and one fixed class are bounded; if not, the test errs).
    one-sided: L(top, alpha/2), p_b = 1 - p_a (proved for every K: "more than half" happens to one class only).
    paper: L(top, alpha/2), U(second, alpha/2), no test: no counter-example is known, and no proof.
    """

    alpha: float = share(0.001, help="Failure probability per input.")
    n: int = count(100_000, help="Draws that choose the class and bound it.")
    form: Form = setting("two-sided", help="What pays for choosing the class from the same draws; paper: nothing does.")
    name: ClassVar[str] = "multinomial"

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

    def conclude(self, state: State, given: Given) -> Decisions:
        """The top class with its bounds, or nothing where the rank test fails."""
        spent, done = self.spent, state["done"]
        p_a, p_b = np.zeros(len(state)), np.ones(len(state))
        p_a[done], p_b[done] = self._bounds(state["hits"][done], state["rival"][done])
        claimed = done.copy()
        if self.form == "two-sided":
            claimed &= rank_test(state["hits"], state["rival"]) <= spent["rank test"]
        return Decisions(np.where(claimed, state["top"], ABSTAIN).astype(np.int64), p_a, p_b)

    def _bounds(self, hits: IntArray, rival: IntArray) -> tuple[FloatArray, FloatArray]:
        """(p_a, p_b) from the counts (rows,) of the top class and the second, each at its share."""
        spent = self.spent
        p_a = ClopperPearson(spent["lower bound"]).lower_at_fixed_n(hits, self.n)
        if self.form == "one-sided":
            return p_a, 1.0 - p_a
        p_b = ClopperPearson(spent["upper bound"]).upper_at_fixed_n(rival, self.n)
        return p_a, np.minimum(1.0 - p_a, p_b)

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all n draws agree."""
        p_a, p_b = self._bounds(np.array([self.n]), np.zeros(1, np.int64))
        return float(p_a[0]), float(p_b[0])

    @property
    def sources(self) -> tuple[str, ...]:
        """Who proposed it, and the rank test."""
        return ("cullen2024", *(("hung2019",) if self.form == "two-sided" else ()))

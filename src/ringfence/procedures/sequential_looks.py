"""What the sequential procedures share: a known radius, looks fixed beforehand, exact boundaries."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringfence.procedures.base import Given, Procedure, State, check_reachable, new_state
from ringfence.settings import count, distance, setting, share
from ringfence.stats import GroupSequentialDesign, group_sequential_design
from ringfence.types import IntArray


@dataclass(frozen=True)
class SequentialLooks(Procedure):
    """Stage 0 chooses from n0 draws, which are discarded; stage 1 is one stream, looked at when n_1 < n_2 < ... of
    its draws are there. The looks grow by ratio (None: 1.1, or 1.25 where look is 1000 or more) up to n.
    """

    radius: float = distance(help="The radius to prove, in [0,1] pixel units.")
    alpha: float = share(0.001, help="Failure probability per input.")
    beta: float = share(0.001, help="Error of giving up early, which costs certificates, never their truth.")
    n0: int = count(100, help="Draws that choose the class.")
    n: int = count(110_000, help="Draws that decide, at most.")
    look: int = count(100, help="Draws up to the first look, and the step of all others.")
    ratio: float | None = setting(None, help="Growth from look to look.", low=1)

    @property
    def targets(self) -> tuple[float, ...]:
        """The radius asked about."""
        return (self.radius,)

    @property
    @abstractmethod
    def level(self) -> float:
        """What the test of the radius may spend of alpha."""

    def design(self, p0: float, level: float | None = None) -> GroupSequentialDesign:
        """The boundaries for one hypothesis p < p0; cached, the same looks for every p0 and level."""
        ratio = self.ratio if self.ratio is not None else 1.1 if self.look < 1000 else 1.25
        return group_sequential_design(p0, level or self.level, self.beta, self.n, self.look, ratio)

    @property
    def last_look(self) -> int:
        """n, rounded up to a multiple of look."""
        return -(-self.n // self.look) * self.look

    @property
    def best_bounds(self) -> tuple[float, float]:
        """If all N draws agree, every p0 with p0^N <= level is proved; rounded down."""
        miss = -float(np.expm1(np.log(self.level) / self.last_look)) * (1 + 1e-12)
        return 1.0 - miss, miss

    @property
    def most_draws(self) -> int:
        """n0 and the last look."""
        return self.n0 + self.last_look

    def request(self, state: State) -> IntArray:
        """n0, then as many draws as the next look needs."""
        if not len(state):
            return np.zeros(0, np.int64)
        looks = self.design(float(state["p0"][0])).looks
        upcoming = looks[np.minimum(state["look"], len(looks) - 1)]
        wanted = np.where(state["stage"] == 0, self.n0, upcoming - state["drawn"])
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def _begun(self, rows: int, given: Given, extra: list[tuple[Any, ...]]) -> State:
        """State before the first draw, p0 of the target rounded up; hopeless targets are refused."""
        check_reachable(self.radius, self.best_case(given), given, "Raise `n` or `sigma`.")
        state = new_state(rows, [("top", "i8"), ("hits", "i8"), ("look", "i4"), ("p0", "f8"), *extra])
        state["p0"] = given.probability_for(self.radius)
        return state

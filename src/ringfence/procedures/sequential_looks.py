"""What the sequential procedures share: a known radius, looks fixed beforehand, exact boundaries (METHODS 9)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from ringfence.mechanisms import one_sided
from ringfence.procedures.base import Given, Procedure, State, new_state
from ringfence.procedures.checks import check_count, check_radius, check_reachable, check_share
from ringfence.stats import GroupSequentialDesign, group_sequential_design
from ringfence.types import IntArray


@dataclass(frozen=True)
class SequentialLooks(Procedure):
    """Stage 0 chooses from n0 draws, which are discarded; stage 1 is one stream, looked at when n_1 < n_2 < ... of
    its draws are there. The looks grow by ratio (None: 1.1, or 1.25 where look is 1000 or more) up to n.
    """

    radius: float
    alpha: float = 0.001
    beta: float = 0.001
    n0: int = 100
    n: int = 110_000
    look: int = 100
    ratio: float | None = None

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
    @abstractmethod
    def level(self) -> float:
        """What the test of the radius may spend of alpha."""

    def design(self, p0: float, level: float | None = None) -> GroupSequentialDesign:
        """The boundaries for one hypothesis p < p0; cached, the same looks for every p0 and level."""
        ratio = self.ratio if self.ratio is not None else 1.1 if self.look < 1000 else 1.25
        return group_sequential_design(p0, level or self.level, self.beta, self.n, self.look, ratio)

    def largest_radius(self, sigma: float) -> float:
        """If all N draws agree, p0^N <= level: sigma * PhiInv(level^(1/N))."""
        last = -(-self.n // self.look) * self.look
        return float(-sigma * ndtri(-np.expm1(np.log(self.level) / last)) * (1 - 1e-9))

    def request(self, state: State) -> IntArray:
        """n0, then as many draws as the next look needs."""
        if not len(state):
            return np.zeros(0, np.int64)
        looks = self.design(float(state["p0"][0])).looks
        upcoming = looks[np.minimum(state["look"], len(looks) - 1)]
        wanted = np.where(state["stage"] == 0, self.n0, upcoming - state["drawn"])
        return np.where(state["done"], 0, wanted).astype(np.int64)

    def _begun(self, rows: int, given: Given, extra: list[tuple[Any, ...]]) -> State:
        """State before the first draw, p0 = Phi(r/sigma) of the target rounded up; hopeless targets are refused."""
        largest = self.largest_radius(given.sigma) / given.norm_bound
        check_reachable(self.radius, largest, given.sigma, "Raise n or sigma.")
        state = new_state(rows, [("top", "i8"), ("hits", "i8"), ("look", "i4"), ("p0", "f8"), *extra])
        state["p0"] = one_sided.probability_for(self.radius * given.norm_bound, given.sigma)
        return state

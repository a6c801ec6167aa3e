"""Unsound on purpose: an honest procedure, one step of which is replaced. A law that lets it pass is no law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ringfence.procedures import Decisions, Given, Procedure, State
from ringfence.types import IntArray, Tally


@dataclass(frozen=True)
class Dishonest(Procedure):
    """Claims to fail at most at alpha; subclasses name the honest one and spoil one of its steps."""

    alpha: float
    name: ClassVar[str] = "dishonest"
    honest: ClassVar[Procedure]

    @property
    def spent(self) -> Mapping[str, float]:
        return {"claimed": self.alpha}

    def start(self, rows: int, given: Given) -> State:
        return self.honest.start(rows, given)

    def request(self, state: State) -> IntArray:
        return self.honest.request(state)

    def update(self, state: State, tally: Tally, given: Given) -> State:
        return self.honest.update(state, tally, given)

    def conclude(self, state: State, given: Given) -> Decisions:
        return self.honest.conclude(state, given)

    @property
    def best_bounds(self) -> tuple[float, float]:
        return self.honest.best_bounds

    @property
    def most_draws(self) -> int:
        return self.honest.most_draws

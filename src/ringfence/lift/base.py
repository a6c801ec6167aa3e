"""Lift: a fixed linear map applied before the noise, with a certified bound on how much it stretches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

from torch import Tensor


class Lift(ABC):
    """x -> A x, or A x + b: a perturbation of l2 norm r becomes one of at most norm_bound * r, which divides radii."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def norm_bound(self) -> float:
        """An upper bound on the largest singular value of A, never below it."""

    def bound_in(self, norm: str) -> float | None:
        """How much distances in a norm are stretched at most; None where no bound is certified, which refuses the lift
        to mechanisms of that norm. In l1 it is the largest column sum of absolute values of A."""
        return self.norm_bound if norm == "l2" else None

    @property
    def sound(self) -> bool:
        """False for ``paper`` forms that leave the factor out."""
        return True

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """The lifted input: (*shape) -> (*lifted shape)."""

    def at(self, x: Tensor, input_id: int) -> Tensor:
        """The lifted input, for lifts that draw A or b once per input from its id; norm_bound covers them all.

        The id may not depend on x: a perturbed input keeps its id and so its map. An adversary who could choose the
        map would not be covered.
        """
        return self(x)

    @property
    def by_id(self) -> bool:
        """Whether ids have maps of their own. Nothing is proved by such a lift where the id follows from the input."""
        return type(self).at is not Lift.at

    def settings(self) -> dict[str, Any]:
        """Name and parameters, for the run's config."""
        unproved = {} if self.sound else {"sound": False}
        return {"name": self.name, "norm_bound": self.norm_bound, **unproved}

    def settings_in(self, norm: str) -> dict[str, Any]:
        """The same with the bound in this norm."""
        return {**self.settings(), "norm_bound": self.bound_in(norm)}


@final
@dataclass(frozen=True)
class Identity(Lift):
    """Noise on the input itself: the usual case."""

    name: ClassVar[str] = "identity"

    @property
    def norm_bound(self) -> float:
        """Exactly 1."""
        return 1.0

    def bound_in(self, norm: str) -> float:
        """1 in every norm."""
        return 1.0

    def __call__(self, x: Tensor) -> Tensor:
        """x unchanged."""
        return x


LIFTS: dict[str, Callable[[], Lift]] = {Identity.name: Identity}
"""Lifts without settings by name, as the node ``lifted(MODEL, by=NAME)`` takes them."""

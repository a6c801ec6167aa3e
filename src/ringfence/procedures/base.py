"""Procedure: how many draws to ask for and what the counts prove. Pure, vectorised, no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ringfence.types import BoolArray, FloatArray, IntArray, Tally

State = NDArray[np.void]
"""Structured array (rows,); every procedure's begins with BASE_FIELDS."""

BASE_FIELDS: list[tuple[str, str]] = [("stage", "i4"), ("drawn", "i8"), ("done", "?")]
"""stage: the stream of draws now used; drawn: draws of that stream seen so far; done: nothing more is wanted."""


@dataclass(frozen=True)
class Given:
    """Facts fixed before sampling: the run's (num_classes, sigma, norm_bound) and per-input arrays (rows,).

    replayed: the draws are stored ones, so that there is no point any more in refusing what they could never prove.
    """

    num_classes: int
    sigma: float
    norm_bound: float = 1.0
    facts: Mapping[str, IntArray] = field(default_factory=dict)
    replayed: bool = False


@dataclass(frozen=True)
class Decisions:
    """What was proved, one entry per row.

    prediction: class or ABSTAIN; p_a: lower bound on that class; p_b: upper bound on every other class;
    radius: set by procedures that prove one target radius, None where the mechanism computes it from the bounds.
    """

    prediction: IntArray
    p_a: FloatArray
    p_b: FloatArray
    radius: FloatArray | None = None


class Procedure(ABC):
    """A certification procedure; subclasses are final frozen dataclasses whose fields are its settings.

    The driver loops: ``request`` says how many further draws of ``state["stage"]`` each row wants (0: done),
    ``update`` receives the tally of exactly those draws, ``conclude`` may be called at any time afterwards.
    Rows are (input, lane) pairs and never influence each other.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("votes",)
    """Names of the readouts whose cells ``update`` reads."""

    alpha: float
    seconds: float | None = None
    """A time budget per input, kept by the driver; only procedures valid at every look have one."""

    @property
    def target(self) -> float | None:
        """The radius this procedure tries to prove, None if it finds one."""
        return None

    @property
    def sound(self) -> bool:
        """False for ``paper`` forms whose failure rate is not proved to be at most alpha."""
        return True

    @property
    @abstractmethod
    def spent(self) -> Mapping[str, float]:
        """Where alpha goes, from the ledger; the sum is at most alpha."""

    @abstractmethod
    def start(self, rows: int, given: Given) -> State:
        """Fresh state for rows inputs."""

    @abstractmethod
    def request(self, state: State) -> IntArray:
        """Draws wanted per row (rows,); 0 where done."""

    @abstractmethod
    def update(self, state: State, tally: Tally) -> State:
        """The state after the requested draws were seen; the argument is not changed."""

    @abstractmethod
    def conclude(self, state: State) -> Decisions:
        """What the draws seen so far prove."""

    def may_end(self, state: State) -> BoolArray:
        """Rows (rows,) whose claims hold if drawing ends now although more is wanted: a time budget may end any."""
        return np.full(len(state), self.seconds is not None)

    @abstractmethod
    def largest_radius(self, sigma: float) -> float:
        """What the most favourable counts would prove, by the one-sided mechanism; 0 if no radius is claimed."""

    def settings(self) -> dict[str, Any]:
        """Every field, for the run's config."""
        from dataclasses import asdict

        return asdict(self)  # type: ignore[call-overload,no-any-return]


def new_state(rows: int, extra: list[tuple[Any, ...]]) -> State:
    """Zeroed structured array (rows,) with BASE_FIELDS and the extra fields."""
    return np.zeros(rows, dtype=np.dtype([*BASE_FIELDS, *extra]))

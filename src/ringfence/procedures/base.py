"""Procedure: how many draws to ask for and what the counts prove. Pure, vectorised, no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, asdict, dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import ArgumentError
from ringfence.mechanisms import Mechanism
from ringfence.settings import check_settings, count, share
from ringfence.stats import NoiseLaw, as_law
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray, Tally

State = NDArray[np.void]
"""Structured array (rows,); every procedure's begins with BASE_FIELDS."""

BASE_FIELDS: list[tuple[str, str]] = [("stage", "i4"), ("drawn", "i8"), ("done", "?")]
"""stage: the stream of draws now used; drawn: draws of that stream seen so far; done: nothing more is wanted."""


@final
@dataclass(frozen=True)
class Given:
    """What is fixed before sampling: the law of the noise (a number: Gaussian of that sigma), the mechanism that
    decides, the lift's bound in its norm, and per-input arrays (rows,) that ``start`` reads.

    replayed: the draws are stored ones, so that there is no point any more in refusing what they could never prove.
    """

    num_classes: int
    law: NoiseLaw
    mechanism: Mechanism
    norm_bound: float = 1.0
    facts: Mapping[str, IntArray] = field(default_factory=dict)
    replayed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", self.mechanism.proved_for(as_law(self.law)))

    def radius(self, p_a: FloatArray, p_b: FloatArray) -> FloatArray:
        """What the bounds prove by the mechanism, divided by the lift's norm and rounded down."""
        return self.mechanism(p_a, p_b, self.law) * self.down

    def probability_for(self, radius: float | FloatArray) -> FloatArray:
        """p0: the least probability of a class that proves the radius, rounded up; infinite where none does."""
        return self.mechanism.probability_for(np.asarray(radius) * self.norm_bound, self.law)

    @property
    def down(self) -> float:
        """What radii after the lift are multiplied by to hold before it."""
        return (1.0 - 1e-9) / self.norm_bound if self.norm_bound != 1.0 else 1.0


@final
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
    Rows are (input, lane) pairs and never influence each other. Radii, and probabilities for radii, come from
    ``given``, whose mechanism owns noise and norm.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("votes",)
    """Names of the readouts that count for it."""
    knows: ClassVar[tuple[str, ...]] = ()
    """Names of the classes of an input that it reads from ``given.facts``, known before any noise."""

    alpha: float
    seconds: float | None = None
    """A time budget per input, kept by the driver; only procedures valid at every look have one."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the cells that ``update`` reads, those of its readouts."""
        return self.needs

    @property
    def targets(self) -> tuple[float, ...]:
        """The radii this procedure tries to prove, ascending; none if it finds one."""
        return ()

    @property
    @final
    def target(self) -> float | None:
        """The first of them, which every input is tried for."""
        return self.targets[0] if self.targets else None

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
    def update(self, state: State, tally: Tally, given: Given) -> State:
        """The state after the requested draws were seen; the argument is not changed."""

    @abstractmethod
    def conclude(self, state: State, given: Given) -> Decisions:
        """What the draws seen so far prove."""

    def may_end(self, state: State) -> BoolArray:
        """Rows (rows,) whose claims hold if drawing ends now although more is wanted: a time budget may end any."""
        return np.full(len(state), self.seconds is not None)

    # What commands and reports ask, so that none of them keeps a list of procedures -----------------------------

    @property
    @abstractmethod
    def best_bounds(self) -> tuple[float, float]:
        """(p_a, p_b) from the most favourable counts; (0, 1) where no radius is claimed."""

    @property
    @final
    def claims_radius(self) -> bool:
        """False for PREDICT, whose radius of 0 is no claim and not a poor one."""
        return self.best_bounds[0] > 0

    def best_case(self, given: Given) -> float:
        """The radius that the most favourable counts would prove; 0 if no radius is claimed."""
        p_a, p_b = self.best_bounds
        return float(given.radius(np.array(p_a), np.array(p_b)))

    def can_answer(self, given: Given) -> bool:
        """Whether the most favourable counts would prove anything."""
        return not self.claims_radius or self.best_case(given) > 0

    @property
    @abstractmethod
    def most_draws(self) -> int:
        """Draws of an input at most."""

    @property
    def stops_early(self) -> bool:
        """Whether an input may take fewer draws than that."""
        return bool(self.targets)

    def expected_draws(self, p: float, given: Given) -> float | None:
        """Mean draws of an input whose class has probability p; None where that is not known."""
        return float(self.most_draws)

    def predictor(self, draws: int) -> Procedure | None:
        """PREDICT with so many draws for the smoothed classifier this is about; None where votes do not decide it."""
        return None

    def claim(self, norm: str) -> str:
        """What holds for each input with probability 1 - alpha, in words."""
        return f"no perturbation of {norm} norm below its radius changes the smoothed classifier's answer"

    @property
    def sources(self) -> tuple[str, ...]:
        """Keys of the papers this rests on, beside Cohen et al. 2019."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Every field, for the run's config."""
        return asdict(self)


@dataclass(frozen=True)
class ChooseThenBound(Procedure):
    """n0 draws choose what n others, of a stream of their own, bound: a choice by the same counts would cost alpha."""

    alpha: float = share(0.001, help="Failure probability per input.")
    n0: int = count(100, help="Draws that choose the class.")
    n: int = count(100_000, help="Draws that bound it.")

    def request(self, state: State) -> IntArray:
        """n0, then n, then nothing."""
        wanted = np.where(state["stage"] == 0, self.n0, self.n)
        return np.where(state["done"], 0, wanted).astype(np.int64)

    @property
    def most_draws(self) -> int:
        """Always n0 and n."""
        return self.n0 + self.n


def new_state(rows: int, extra: list[tuple[Any, ...]]) -> State:
    """Zeroed structured array (rows,) with BASE_FIELDS and the extra fields."""
    return np.zeros(rows, dtype=np.dtype([*BASE_FIELDS, *extra]))


def strongest_rival(outcomes: IntArray, top: IntArray) -> IntArray:
    """Largest count (rows,) beside that of top; an invalid score is an outcome too, and a rival of every class."""
    others = outcomes.copy()
    others[np.arange(len(others)), top] = -1
    return np.asarray(others.max(1, initial=0))


def check_reachable(radius: float, best: float, given: Given, remedy: str, name: str = "radius") -> None:
    """A target that no outcome of the draws could prove is refused before anything runs."""
    if radius > best:
        rule = (
            f"no outcome of these draws can prove more than {best:.4g} by {given.mechanism.spelled} under {given.law}"
        )
        raise ArgumentError(name, rule, radius, remedy)


def claims(
    decisions: Decisions, given: Given, also: Sequence[Mechanism] = ()
) -> tuple[IntArray, FloatArray, dict[str, FloatArray]]:
    """What is claimed: prediction (rows,), radius (rows,) by the mechanism that decides, and every mechanism's radii.

    All mechanisms read the same (p_a, p_b), so that further ones cost no alpha. Radii are divided by the lift's
    norm and rounded down. Without a positive radius nothing is claimed, unless the procedure set the radius.
    """
    if decisions.radius is not None:
        return decisions.prediction, decisions.radius, {}
    claiming = decisions.prediction != ABSTAIN
    radii = {
        one.name: np.where(claiming, one(decisions.p_a, decisions.p_b, given.law) * given.down, 0.0)
        for one in (given.mechanism, *also)
    }
    radius = radii[given.mechanism.name]
    return np.where(radius > 0, decisions.prediction, ABSTAIN), radius, radii

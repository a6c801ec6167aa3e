"""Sequential certification at a known radius, and at larger ones: exact group-sequential binomial tests, at looks fixed
beforehand, which ACES has too (aces_sequential.py)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.procedures.base import Decisions, Given, Procedure, State, check_reachable, new_state
from ringfence.procedures.predict import Voted
from ringfence.settings import count, distance, setting, share
from ringfence.stats import AlphaLedger, GroupSequentialDesign, group_sequential_design
from ringfence.types import ABSTAIN, BoolArray, IntArray, Tally


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

    def _initial_state(self, rows: int, given: Given, extra: list[tuple[Any, ...]]) -> State:
        """State before the first draw, p0 of the target rounded up; hopeless targets are refused."""
        check_reachable(self.radius, self.best_case(given), given, "Raise `n` or `sigma`.")
        state = new_state(rows, [("top", "i8"), ("hits", "i8"), ("look", "i4"), ("p0", "f8"), *extra])
        state["p0"] = given.probability_for(self.radius)
        return state


@final
@dataclass(frozen=True)
class Sequential(SequentialLooks, Voted):
    """n0 draws choose the class and are discarded; then, at looks n_1 < n_2 < ... fixed beforehand, S_k
    successes among the draws with index below n_k certify if S_k >= u_k and give up if S_k <= v_k.

    P(certify) <= alpha for every p_A < p0, the probability that proves the radius, exactly; beta costs power, never
    soundness.
    larger: an ascending grid of radii above the target, each with its own boundary at the same looks. The largest is
    reported such that it and all smaller ones crossed; drawing goes on until all did, or the smallest that has not
    gives up, which makes those above it moot. This costs no extra alpha: a claim is false only if the smallest false
    radius crossed, which it does at any look with probability at most alpha, whenever drawing ends.
    """

    larger: tuple[float, ...] = distance((), help="Further radii above it to go on and prove, on the same draws.")
    name: ClassVar[str] = "sequential"

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(a >= b for a, b in pairwise(self.targets)):
            rule = f"must be above the radius {self.radius:g}, and ascend"
            raise ArgumentError("larger", rule, self.larger, f"Write e.g. {2 * self.radius or 0.25:g}.")

    @property
    def targets(self) -> tuple[float, ...]:
        """The radius asked about, and the larger ones."""
        return self.radius, *self.larger

    @property
    def level(self) -> float:
        """All of alpha."""
        return self.alpha

    @property
    def spent(self) -> Mapping[str, float]:
        """All on the sequential test."""
        return AlphaLedger.shared(self.alpha, ("group-sequential test", self.alpha))

    def start(self, rows: int, given: Given) -> State:
        """p0 per row and radius of the grid, divided by the lift's norm and rounded up."""
        size = (len(self.targets),)
        state = self._initial_state(rows, given, [("grid", "f8", size), ("crossed", "?", size)])
        if self.larger and not given.replayed:
            check_reachable(
                self.larger[-1], self.best_case(given), given, "Leave it out, or raise n or sigma.", "larger"
            )
        state["grid"] = given.probability_for(np.array(self.targets))
        return state

    def update(self, state: State, tally: Tally, given: Given) -> State:
        """Choose the class; or one look: integer comparisons for all rows at once."""
        state, votes, rows = state.copy(), tally.votes, np.arange(len(state))
        if not len(state):
            return state
        selecting = state["stage"] == 0
        state["top"] = np.where(selecting, votes.argmax(1), state["top"])
        state["hits"] += np.where(selecting, 0, votes[rows, state["top"]])
        state["drawn"] += np.where(selecting, 0, tally.draws)
        look, designs = state["look"], [self.design(float(p0)) for p0 in state["grid"][0]]
        needed = np.stack([one.certify_at for one in designs])[:, look].T
        state["crossed"] |= ~selecting[:, None] & (state["hits"][:, None] >= needed)
        proved = self._proved(state)
        # Only the smallest radius that has not crossed may give up: it alone decides whether going on can help.
        testing = np.minimum(proved, len(designs) - 1)
        hopeless = state["hits"] <= np.stack([one.give_up_at for one in designs])[testing, look]
        last = look == len(designs[0].looks) - 1
        state["done"] = ~selecting & ((proved == len(designs)) | hopeless | last)
        state["look"] += ~selecting & ~state["done"]
        state["stage"] = 1
        return state

    def may_end(self, state: State) -> BoolArray:
        """Once the target is proved: larger radii are claimed only if they crossed before, whenever drawing ends."""
        return np.asarray(state["crossed"][:, 0])

    def conclude(self, state: State, given: Given) -> Decisions:
        """The largest radius of the grid up to which everything crossed, or nothing."""
        reached = self._proved(state)
        grid = np.array([0.0, *self.targets])
        p_a = np.concatenate([np.zeros((len(state), 1)), state["grid"]], axis=1)[np.arange(len(state)), reached]
        prediction = np.where(reached > 0, state["top"], ABSTAIN).astype(np.int64)
        return Decisions(prediction, p_a, 1.0 - p_a, grid[reached])

    def expected_draws(self, p: float, given: Given) -> float | None:
        """From the exact paths of the test; not known where larger radii go on after it."""
        if self.larger:
            return None
        return self.n0 + self.design(float(given.probability_for(self.radius))).expected_draws(p)

    @property
    def sources(self) -> tuple[str, ...]:
        """The spending of alpha, and the saving it is measured by."""
        return "lan1983", "horvath2022"

    def _proved(self, state: State) -> IntArray:
        """How many radii of the grid (rows,), from the smallest on, have all crossed."""
        reached = np.cumprod(state["crossed"], axis=1).sum(1)
        return np.asarray(reached, np.int64)

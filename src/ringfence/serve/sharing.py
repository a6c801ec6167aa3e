"""Sharing: requests with settings of their own draw from one engine, each its fair part of every batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import final

import numpy as np
from torch import Tensor

from ringfence.data import Input
from ringfence.driver import Begun
from ringfence.in_flight import InFlight
from ringfence.lift import Lift
from ringfence.mechanisms import Mechanism
from ringfence.procedures import Anytime
from ringfence.record import Record
from ringfence.sampling import CHUNK, Finished, Sampler
from ringfence.serve.limits import Question
from ringfence.types import IntArray, Tally

KEPT = 64
"""Settings that nobody asks about any more, whose tables are kept."""


@final
@dataclass(frozen=True)
class Bounds:
    """What the draws so far prove: valid at this moment, and only growing."""

    prediction: int
    radius: float
    p_a: float
    draws: int
    seconds: float


@dataclass
class Course:
    """How a request fares: when it came, began and was last looked at, the draws it has and those it waits for.

    first: seconds up to its first look; late: time ended it; left: nobody waits for it any more.
    """

    came: float = field(default_factory=time.monotonic)
    began: float = 0.0
    looked: float = 0.0
    first: float = 0.0
    drawn: int = 0
    wanted: int = 0
    late: bool = False
    left: bool = False


@final
@dataclass(frozen=True, eq=False)
class Asked(Input):
    """An input with what is asked about it; watch hears of every look but the last.

    background: of a job, whose budget counts from when it begins; others must have their answer before it ends.
    """

    question: Question = field(kw_only=True)
    test: Anytime = field(kw_only=True)
    background: bool = field(default=False, kw_only=True)
    watch: Callable[[Bounds], None] | None = field(default=None, kw_only=True)
    answer: Future[Record] = field(default_factory=Future, kw_only=True)
    course: Course = field(default_factory=Course, kw_only=True)

    @property
    def deadline(self) -> float:
        """By which time drawing ends."""
        begin = self.course.began if self.background else self.course.came
        return np.inf if self.question.seconds is None else begin + self.question.seconds

    def leave(self) -> None:
        """Nobody waits for the answer any more."""
        self.course.left = True

    def late_for(self, draws: int) -> bool:
        """Asked at a look: whether so many draws more would take too long, at the pace so far; or as long as before."""
        course, now = self.course, time.monotonic()
        course.drawn, course.wanted = course.drawn + course.wanted, draws
        expected = max(draws * (now - course.began) / max(course.drawn, 1), now - course.looked)
        course.looked = now
        if not course.first and course.drawn > self.test.n0:
            course.first = now - course.began
        course.late = draws > 0 and (course.left or now + expected > self.deadline)
        return course.late


@final
class Shared:
    """An engine of which every input in work gets an equal part: large requests are drawn in slices, in turn.

    An input is admitted whenever there is a slot, so that a new one need not wait for those that draw long; a slice
    is so large that all of them together keep two batches queued, as in a run (Yu et al. 2022 call it continuous
    batching). Once an input is decided, rows are asked again at once, not only now and then: it waits for that.
    """

    def __init__(self, engine: Sampler) -> None:
        self._engine = engine
        self.shape, self.lanes, self.forwards_per_draw = engine.shape, engine.lanes, engine.forwards_per_draw
        self.seconds = engine.seconds
        self._rest: dict[int, tuple[int, int, int]] = {}  # slot -> stage, next draw, draws left
        self._so_far: dict[int, Tally] = {}
        self._decided = 0

    @property
    def slots(self) -> int:
        """How many inputs can be in work at once."""
        return self._engine.slots

    @property
    def drawn(self) -> int:
        """Draws until now."""
        return self._engine.drawn

    @property
    def batches(self) -> int:
        """Batches until now."""
        return self._engine.batches

    @property
    def confirmed(self) -> int:
        """The last batch known to come from an unchanged classifier."""
        return self._engine.confirmed

    @property
    def hungry(self) -> bool:
        """Whether there is a slot."""
        return len(self._rest) < self.slots

    def admit(self, input_id: int, lifted: Tensor) -> int:
        """Place an input."""
        slot = self._engine.admit(input_id, lifted)
        self._rest[slot] = (0, 0, 0)
        return slot

    def submit(self, slot: int, stage: int, start: int, draws: int) -> None:
        """Ask for draws, of which the first slice is queued."""
        share = 2 * self._engine.plan.batch // max(1, len(self._rest))
        slice_ = min(draws, max(CHUNK, share // CHUNK * CHUNK))
        self._rest[slot] = (stage, start + slice_, draws - slice_)
        self._engine.submit(slot, stage, start, slice_)

    def release(self, slot: int) -> None:
        """Free a slot whose input is decided."""
        del self._rest[slot]
        self._decided = self._engine.batches
        self._engine.release(slot)

    def step(self) -> Finished | None:
        """Run one batch; whole requests that are complete by now."""
        # Now and then the engine asks by itself, and then remembers rows of these requests too.
        finished = self._engine.step(ask=self._decided > self._engine.confirmed and self.batches % 4 > 0)
        if finished is None or not len(finished.slots):
            return finished
        whole: list[int] = []
        for place, slot in enumerate(finished.slots.tolist()):
            part = finished.tally[slice(place * self.lanes, (place + 1) * self.lanes)]
            self._so_far[slot] = self._so_far[slot] + part if slot in self._so_far else part
            stage, start, left = self._rest[slot]
            if left:
                self.submit(slot, stage, start, left)
            else:
                whole.append(slot)
        return Finished(np.array(whole, np.int64), _joined([self._so_far.pop(slot) for slot in whole], finished.tally))

    def confirm(self) -> None:
        """Find out about the batches that are not confirmed."""
        self._engine.confirm()


def _joined(parts: list[Tally], like: Tally) -> Tally:
    """One tally of all rows."""
    if not parts:
        return like[:0]
    cells = {name: np.concatenate([one.cells[name] for one in parts]) for name in like.cells}
    return Tally(cells, np.concatenate([one.draws for one in parts]))


@final
class Flights:
    """Requests in work, those with the same settings together: one table of states for each."""

    def __init__(
        self, engine: Shared, begun: Begun, also: tuple[Mechanism, ...], lift: Lift, seed: int, config_hash: str
    ) -> None:
        self._engine, self._begun = engine, begun
        self._parts = (begun.given, also, lift, ("main",), seed, config_hash, _late)
        self._flights: dict[Anytime, InFlight] = {}
        self.open_now: dict[int, Asked] = {}
        self.everything: set[Asked] = set()  # with those that are decided and wait to be confirmed

    def open(self, item: Input, facts: Mapping[str, int] | None = None) -> int:
        """Begin with a request."""
        assert isinstance(item, Asked)
        if item.test not in self._flights:
            self._forget()
            self._flights[item.test] = InFlight(self._engine, item.test, *self._parts)
        item.course.began = item.course.looked = time.monotonic()
        slot = self._flights[item.test].open(item)
        item.course.wanted = item.test.n0
        self.open_now[slot] = item
        return slot

    def settle(self, finished: Finished) -> Iterator[tuple[Input, list[Record]]]:
        """Take in complete requests; those that are decided leave, the others hear what is proved by now."""
        tests = [self.open_now[slot].test for slot in finished.slots.tolist()]
        for test in dict.fromkeys(tests):
            places: IntArray = np.array([place for place, one in enumerate(tests) if one == test], np.int64)
            slots = finished.slots[places]
            flight = self._flights[test]
            decided = list(flight.settle(Finished(slots, finished.tally[places])))
            gone = {id(item) for item, _ in decided}
            watched = []
            for slot in slots.tolist():
                if id(self.open_now[slot]) in gone:
                    del self.open_now[slot]
                elif self.open_now[slot].watch is not None:
                    watched.append(slot)
            for item, top, radius, p_a in flight.so_far(watched) if watched else ():
                assert isinstance(item, Asked)
                assert item.watch is not None
                item.watch(Bounds(top, radius, p_a, item.course.drawn, time.monotonic() - item.course.came))
            yield from decided

    def _forget(self) -> None:
        """Drop settings that nobody asks about, where there are many."""
        if len(self._flights) >= KEPT:
            used = {item.test for item in self.open_now.values()}
            self._flights = {test: flight for test, flight in self._flights.items() if test in used}


def _late(item: Input, draws: int) -> bool:
    assert isinstance(item, Asked)
    return item.late_for(draws)

"""Sharing: requests, each with settings of its own, draw from one sampler and have a fair part of every batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
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
from ringfence.serve.asked import Asked, Bounds
from ringfence.serve.limits import MORE, Gone
from ringfence.serve.pace import Pace
from ringfence.types import IntArray, Tally

KEPT = 64
"""Settings that nobody asks about any more, whose tables are kept."""


@final
@dataclass
class _InSlot:
    """An input in a slot of the sampler, with the request for draws that is being answered in slices.

    number: how many inputs came before it; had: draws it was ever queued for; stage, start, left: of the request what
    is not queued yet; so_far: what its slices brought; queued: one is on its way; released: nobody waits for it.
    """

    slot: int
    number: int
    had: int = 0
    stage: int = 0
    start: int = 0
    left: int = 0
    so_far: Tally | None = None
    queued: bool = False
    released: bool = False

    @property
    def turn(self) -> tuple[int, int]:
        """Who has had fewer draws is before it, by powers of ten; among equals who came first."""
        return len(str(self.had // CHUNK)) if self.had >= CHUNK else 0, self.number


@final
class SharedSampler:
    """A sampler of one lane that requests share: large ones are drawn in slices, those that have had few draws first.

    An input is admitted whenever there is a slot, and does not wait for those that draw long: most need few draws, and
    the others have an answer already (least attained service, Nuyens and Wierman 2008; by powers of ten, or requests of
    one size would all end at once). All together keep two batches queued, as in a run (Yu et al. 2022 call it
    continuous batching). Once an input is decided, rows are asked again at once, not only now and then: it waits for
    that.
    """

    def __init__(self, sampler: Sampler, pace: Pace) -> None:
        self._sampler, self._pace = sampler, pace
        self._batches = 2 + sampler.ahead  # that all of them have queued or on their way
        self.shape, self.lanes, self.forwards_per_draw = sampler.shape, sampler.lanes, sampler.forwards_per_draw
        self.seconds = sampler.seconds
        self._in_slots: dict[int, _InSlot] = {}
        self._turns: list[tuple[tuple[int, int], _InSlot]] = []  # a heap
        self._number = count()
        self._decided, self._stepped = 0, 0.0

    # As the sampler has them (driver.DrawingSampler).
    slots = property(attrgetter("_sampler.slots"))
    drawn = property(attrgetter("_sampler.drawn"))
    batches = property(attrgetter("_sampler.batches"))
    confirmed = property(attrgetter("_sampler.confirmed"))

    @property
    def hungry(self) -> bool:
        """Whether there is a slot."""
        return len(self._in_slots) < self._sampler.slots

    def admit(self, input_id: int, lifted: Tensor) -> int:
        """Place an input."""
        if not self._in_slots:
            self._stepped = 0.0  # since the last batch there was nothing to do
        slot = self._sampler.admit(input_id, lifted)
        self._in_slots[slot] = _InSlot(slot, next(self._number))
        return slot

    def submit(self, slot: int, stage: int, start: int, draws: int) -> None:
        """Ask for draws, which are queued in slices when it is their turn."""
        held = self._in_slots[slot]
        held.stage, held.start, held.left = stage, start, draws
        heappush(self._turns, (held.turn, held))

    def release(self, slot: int) -> None:
        """Free a slot whose input is decided, or left; once what is on its way for it has come."""
        held = self._in_slots[slot]
        held.released, self._decided = True, self._sampler.batches
        if not held.queued:
            self._free(slot)

    def _free(self, slot: int) -> None:
        del self._in_slots[slot]
        self._sampler.release(slot)

    def _queue(self) -> None:
        """Let those who have had the fewest draws have some more, while fewer than two batches are queued."""
        batch = self._sampler.plan.batch
        share = max(-(-self._batches * batch // max(1, len(self._in_slots) * CHUNK)) * CHUNK, batch // 8)
        while self._turns and self._sampler.pending < 2 * batch:
            held = heappop(self._turns)[1]
            if held.released:
                continue
            draws = min(held.left, share)
            self._sampler.submit(held.slot, held.stage, held.start, draws)
            held.start, held.left, held.had = held.start + draws, held.left - draws, held.had + draws
            held.queued = True

    def step(self) -> Finished | None:
        """Run one batch; whole requests that are complete by now."""
        now = time.monotonic()
        if self._stepped:
            self._pace.step.saw(now - self._stepped)
        self._stepped = now
        self._queue()
        # Now and then the sampler asks by itself, and then remembers rows of these requests too.
        finished = self._sampler.step(ask=self._decided > self._sampler.confirmed and self.batches % 4 > 0)
        if finished is None or not len(finished.slots):
            return finished
        rows = list[int]()  # of requests that came in one slice: they are taken as they are
        joined: dict[int, Tally] = {}
        for number, slot in enumerate(finished.slots.tolist()):
            held = self._in_slots[slot]
            held.queued = False
            if held.released:
                self._free(slot)
            elif held.so_far is None and not held.left:
                rows.append(number)
            else:
                part = finished.tally[slice(number, number + 1)]
                part = part if held.so_far is None else held.so_far + part
                held.so_far = part if held.left else None
                if held.left:
                    heappush(self._turns, (held.turn, held))
                else:
                    joined[slot] = part
        if len(rows) == len(finished.slots):
            return finished
        whole = np.array(rows, np.int64)
        slots = np.concatenate([finished.slots[whole], np.array(list(joined), np.int64)])
        return Finished(slots, _concatenated([finished.tally[whole], *joined.values()]))

    def confirm(self) -> None:
        """Find out about the batches that are not confirmed."""
        self._sampler.confirm()


def _concatenated(parts: list[Tally]) -> Tally:
    """One tally of all rows."""
    cells = {name: np.concatenate([one.cells[name] for one in parts]) for name in parts[0].cells}
    return Tally(cells, np.concatenate([one.draws for one in parts]))


@final
class Flights:
    """Requests in work, those with the same settings together: one table of states for each."""

    def __init__(
        self,
        sampler: SharedSampler,
        begun: Begun,
        also: tuple[Mechanism, ...],
        lift: Lift,
        seed: int,
        config_hash: str,
        pace: Pace,
    ) -> None:
        self._sampler, self._pace, self._reserve = sampler, pace, 0.0
        self._parts = (begun.given, also, lift, ("main",), seed, config_hash, self._late)
        self._flights: dict[Anytime, InFlight] = {}
        self.open_now: dict[int, Asked] = {}
        self._of_slot: dict[int, InFlight] = {}
        self.everything: set[Asked] = set()  # with those that are decided and wait to be confirmed

    @property
    def jobs(self) -> int:
        """How many requests in work are of jobs."""
        return sum(one.background for one in self.open_now.values())

    def take_on(self, asked: Asked) -> None:
        """Answer for a request from now on, until it has its answer."""
        self.everything.add(asked)
        asked.answer.add_done_callback(lambda _: self.everything.discard(asked))

    def open(self, item: Input, facts: Mapping[str, int] | None = None) -> int:
        """Begin with a request."""
        assert isinstance(item, Asked)
        if item.test not in self._flights:
            self._forget()
            self._flights[item.test] = InFlight(self._sampler, item.test, *self._parts)
        item.timing.began = item.timing.looked = time.monotonic()
        flight = self._flights[item.test]
        slot = flight.open(item)
        item.timing.wanted, item.timing.until = item.test.n0, item.deadline
        self.open_now[slot], self._of_slot[slot] = item, flight
        return slot

    def settle(self, finished: Finished) -> Iterator[tuple[Input, list[Record]]]:
        """Take in complete requests; those that are decided leave, the others hear what is proved by now."""
        self._reserve = self._pace.reserve
        flights = [self._of_slot[slot] for slot in finished.slots.tolist()]
        for flight in dict.fromkeys(flights):
            places: IntArray = np.array([place for place, one in enumerate(flights) if one is flight], np.int64)
            slots = finished.slots[places]
            decided = list(flight.settle(Finished(slots, finished.tally[places])))
            gone = {id(item) for item, _ in decided}
            watched = []
            for slot in slots.tolist():
                if id(self.open_now[slot]) in gone:
                    del self._of_slot[slot]
                    self.open_now.pop(slot).timing.ended = time.monotonic()
                elif self.open_now[slot].watch is not None:
                    watched.append(slot)
            for item, top, radius, p_a in flight.so_far(watched) if watched else ():
                assert isinstance(item, Asked)
                assert item.watch is not None
                item.watch(Bounds(top, radius, p_a, item.timing.drawn, time.monotonic() - item.timing.came))
            yield from decided
        yield from self._stopped()

    def _stopped(self) -> Iterator[tuple[Input, list[Record]]]:
        """Those whose time is over, or whom nobody waits for, with what their last look proved."""
        until = time.monotonic() + self._reserve
        for slot in [slot for slot, one in self.open_now.items() if one.over(until)]:
            item = self.open_now.pop(slot)
            item.timing.late, item.timing.ended = True, time.monotonic()
            for _, records in self._of_slot.pop(slot).stop([slot]):
                if item.timing.first:
                    yield item, records
                else:
                    self._pace.lead.saw(time.monotonic() - item.timing.began)
                    item.answer.set_exception(Gone("had no time for a first look", f"{item.question.seconds} s", MORE))

    def _late(self, item: Input, draws: int) -> bool:
        assert isinstance(item, Asked)
        return item.late_for(draws, self._reserve)

    def _forget(self) -> None:
        """Drop settings that nobody asks about, where there are many."""
        if len(self._flights) >= KEPT:
            used = {item.test for item in self.open_now.values()}
            self._flights = {test: flight for test, flight in self._flights.items() if test in used}

"""Dispatch: which worker has which inputs, and what becomes of them when a worker fails. Knows no cluster."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import final

from ringfence.data import Input

LARGEST_GROUP = 16
"""Inputs that are sent at once, at most; towards the end fewer, so that all workers end together."""

LOSSES = 2
"""Workers that may die with an input before it is tried alone: it may be what kills them."""

HOPELESS = 3
"""Inputs that fail alone, and have not done so in an earlier session, before anything was decided: the fault is not
theirs."""


@final
@dataclass
class Dispatch:
    """Hands inputs out, takes answers in. An input is answered once; a second answer is dropped, whatever it says.

    What is drawn for an input depends on the run's seed and its id, so an input that is done again elsewhere gets the
    same answer: nobody has a second chance at a larger radius. Float noise is another on another kind of device: what
    is done there as well, and answered sooner because it proved something sooner, would be such a chance.
    An input whose worker raised an error may be to blame or not, as inputs share batches. It becomes a suspect: done
    alone, and failed only if that fails on two workers, or on the only one.

    failed: reasons by input; blamed: how often a worker failed on a suspect that another one answered.
    _alone: suspects, and which workers failed on them, why; _holders: who has an input now; _single: the inputs that
    may be given to a second worker at the end, oldest first.
    """

    inputs: Iterator[Input]
    workers: int = 1
    failed_before: frozenset[int] = frozenset()
    failed: dict[int, str] = field(default_factory=dict)
    answered: int = 0
    blamed: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, str] = field(default_factory=dict)
    _waiting: deque[Input] = field(default_factory=deque)
    _suspects: deque[Input] = field(default_factory=deque)
    _held: dict[str, dict[int, Input]] = field(default_factory=dict)
    _alone: dict[int, dict[str, str]] = field(default_factory=dict)
    _losses: Counter[int] = field(default_factory=Counter)
    _answered: set[int] = field(default_factory=set)
    _holders: dict[int, list[str]] = field(default_factory=dict)
    _single: dict[int, None] = field(default_factory=dict)
    _exhausted: bool = False

    def group(self, worker: str) -> list[Input]:
        """The next inputs of a worker that goes on; none if there are none now, and its round shall end."""
        if self._suspects:
            return []  # somebody has to become free for them
        self._look_ahead()
        left = len(self._waiting)
        size = min(LARGEST_GROUP, max(1, left // (2 * self.workers))) if self._exhausted else LARGEST_GROUP
        return [self._give(worker, self._waiting.popleft()) for _ in range(min(size, left))]

    def suspect(self, worker: str) -> Input | None:
        """An input that this worker shall do alone; not one that it failed on already.

        Where the first ones failed and nothing is decided yet the last ones tell more: neighbours are often alike.
        """
        if self.failed and not self.answered:
            self._suspects.reverse()
        for _ in range(len(self._suspects)):
            item = self._suspects.popleft()
            if worker not in self._alone.setdefault(item.id, {}):
                return self._give(worker, item)
            self._suspects.append(item)
        return None

    def spare(self, worker: str) -> Input | None:
        """For a worker that is free at the end: what another one, which draws alike, has had for longest; the first
        answer counts."""
        if self._suspects or self._waiting or not self._exhausted:
            return None
        for input_id in list(self._single):
            (holder,) = self._holders[input_id]
            alike = self.kinds.get(holder, "") == self.kinds.get(worker, "")
            if holder != worker and alike and input_id not in self._alone:
                del self._single[input_id]
                return self._give(worker, self._held[holder][input_id])
        return None

    def answer(self, worker: str, input_id: int) -> bool:
        """Take an answer; False if the input had one, which then stands."""
        if input_id in self._answered or input_id in self.failed:
            return False
        for holder in self._holders.pop(input_id, ()):
            self._held[holder].pop(input_id, None)
        self._single.pop(input_id, None)
        self.blamed.update(self._alone.pop(input_id, {}).keys())  # those failed where another one did not
        self._answered.add(input_id)
        self.answered += 1
        return True

    def lost(self, worker: str, reason: str) -> int:
        """A worker is gone: what only it held goes to others; how many inputs that were."""
        held = self._released(worker)
        for item in held:
            self._losses[item.id] += 1
            if item.id in self._alone:
                self._failed_alone(worker, item, reason)
            elif self._losses[item.id] > LOSSES:
                self._suspects.append(item)
            else:
                self._waiting.appendleft(item)
        return len(held)

    def ended(self, worker: str, reason: str) -> None:
        """A worker's round ended. With an error: whatever it held may be why. Without: what it still held came too late
        for that round, and is lost to it like that of a worker that is gone."""
        if not reason:
            self.lost(worker, "its round ended without an answer")
            return
        for item in self._released(worker):
            if item.id in self._alone:
                self._failed_alone(worker, item, reason)
            else:
                self._suspects.append(item)

    def _give(self, worker: str, item: Input) -> Input:
        self._held.setdefault(worker, {})[item.id] = item
        holders = self._holders.setdefault(item.id, [])
        holders.append(worker)
        if len(holders) == 1:
            self._single[item.id] = None
        return item

    def _released(self, worker: str) -> list[Input]:
        """What it held and nobody else holds."""
        found = []
        for item in self._held.pop(worker, {}).values():
            holders = self._holders[item.id]
            holders.remove(worker)
            if holders:
                self._single[item.id] = None
            else:
                del self._holders[item.id]
                self._single.pop(item.id, None)
                found.append(item)
        return found

    def _failed_alone(self, worker: str, item: Input, reason: str) -> None:
        tried = self._alone[item.id]
        tried[worker] = reason
        if len(tried) >= min(2, self.workers):
            self.failed[item.id] = reason
            del self._alone[item.id]
        else:
            self._suspects.append(item)

    @property
    def hopeless(self) -> str | None:
        """The reason, if inputs fail one by one and none was ever decided."""
        fresh = [reason for input_id, reason in self.failed.items() if input_id not in self.failed_before]
        return fresh[0] if not self.answered and len(fresh) >= HOPELESS else None

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be handed out."""
        self._look_ahead()
        return not self._waiting and not self._suspects

    @property
    def finished(self) -> bool:
        """Whether every input has its answer, or its reason."""
        return self.idle and not self._holders

    def _look_ahead(self) -> None:
        """Read a few groups ahead, to know whether the end is near."""
        wanted = 2 * LARGEST_GROUP * self.workers - len(self._waiting)
        if wanted > 0 and not self._exhausted:
            read = list(islice(self.inputs, wanted))
            self._waiting.extend(read)
            self._exhausted = len(read) < wanted

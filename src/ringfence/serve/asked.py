"""A request: the input, what is asked about it, what was proved so far, and its times."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import final

import numpy as np

from ringfence.data import Input
from ringfence.procedures import Anytime
from ringfence.record import Record
from ringfence.serve.limits import Question


@final
@dataclass(frozen=True)
class Bounds:
    """What the draws so far prove: valid at this moment, and only growing."""

    prediction: int
    radius: float
    p_a: float
    draws: int
    seconds: float


@final
@dataclass
class Timing:
    """When a request came, began, was last looked at and ended, by time.monotonic(); 0 for what has not happened.

    until: its deadline, once it has begun; first: seconds from its beginning to its first look; drawn, wanted: draws
    it had at its last look, and those it waits for; late: time ended it; left: nobody waits for it any more.
    """

    came: float = field(default_factory=time.monotonic)
    began: float = 0.0
    looked: float = 0.0
    ended: float = 0.0
    until: float = np.inf
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
    leaving: called once nobody waits for the answer any more.
    """

    question: Question = field(kw_only=True)
    test: Anytime = field(kw_only=True)
    background: bool = field(default=False, kw_only=True)
    watch: Callable[[Bounds], None] | None = field(default=None, kw_only=True)
    leaving: list[Callable[[], None]] = field(default_factory=list, kw_only=True)
    answer: Future[Record] = field(default_factory=Future, kw_only=True)
    timing: Timing = field(default_factory=Timing, kw_only=True)

    @property
    def deadline(self) -> float:
        """By when the answer must be there."""
        begin = self.timing.began if self.background else self.timing.came
        return np.inf if self.question.seconds is None else begin + self.question.seconds

    def leave(self) -> None:
        """Nobody waits for the answer any more."""
        self.timing.left = True
        for told in self.leaving:
            told()

    def over(self, moment: float) -> bool:
        """Whether drawing for it ends by then; of a job not before its first look, which it can wait for."""
        timing = self.timing
        return timing.left or (timing.until < moment and (not self.background or timing.first > 0))

    def late_for(self, draws: int, reserve: float) -> bool:
        """Asked at a look: whether so many draws more would take too long, at the pace of all or of the last ones."""
        timing, now = self.timing, time.monotonic()
        timing.drawn += timing.wanted
        each = max((now - timing.began) / max(timing.drawn, 1), (now - timing.looked) / max(timing.wanted, 1))
        timing.looked, timing.wanted = now, draws
        if not timing.first and timing.drawn > self.test.n0:
            timing.first = now - timing.began
        timing.late = draws > 0 and (timing.left or now + draws * each + reserve > timing.until)
        return timing.late

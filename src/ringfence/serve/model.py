"""Model: what requests and jobs know of a model under service, wherever it works."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor

from ringfence.errors import ArgumentError
from ringfence.procedures import Anytime, Given
from ringfence.serve.asked import Asked, Bounds, Timing
from ringfence.serve.claim import Claim
from ringfence.serve.limits import Busy, Gone, Limits, Question
from ringfence.serve.pace import Pace
from ringfence.store import RunConfig

PATIENCE = 0.5
"""Of its budget: a request whose first answer would take longer is refused at once, to ask elsewhere in time."""
TESTS = 1024
"""Settings of requests whose procedures are kept: to find what a radius asks for takes milliseconds."""


class Terms(NamedTuple):
    """What does not change while a model is served; lattice: of exact noise, on which inputs must lie."""

    name: str
    limits: Limits
    config: RunConfig
    shape: tuple[int, ...]
    class_names: Any
    usual: Anytime
    given: Given
    lattice: int | None


class Load(NamedTuple):
    """What a model has to do and has done, all of its devices together; stay and least: see Pace."""

    draws: int = 0
    batches: int = 0
    slots: int = 1
    in_work: int = 0
    waiting: int = 0
    stay: float = 0.0
    least: float = 0.0


class Model(ABC):
    """Answers questions about inputs; what it claims by that, and what it refuses, follow from its terms.

    ``ask`` is the one way in, wherever the model works: it refuses what can be refused at once. How an input is
    identified and who works on it are up to the two kinds there are (served.py, apart.py).
    """

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.name, self.limits, self.config, self.shape, self.class_names, self._usual, self._given, _ = terms
        self.config_hash = self.config.digest
        self.pace = Pace()
        self.broken: str | None = None
        self._tests = lru_cache(TESTS)(self._test_of)
        self.claim = lru_cache(TESTS)(partial(Claim.of, self.config))  # of a test: what its answers claim

    @property
    @abstractmethod
    def load(self) -> Load:
        """What it has to do now, or had when that was last heard of."""

    @abstractmethod
    def _identify(self, x: Tensor) -> int:
        """The id of a request; refuses inputs off the lattice of exact noise."""

    @abstractmethod
    def _enqueue(self, asked: Asked) -> None:
        """Have a request worked on, or refuse it because there are too many."""

    def ask(
        self,
        x: Tensor,
        question: Question,
        *,
        watch: Callable[[Bounds], None] | None = None,
        background: bool = False,
        came: float | None = None,
    ) -> Asked:
        """Put an input (*shape), float32, in line; its ``answer`` is the record, once it is confirmed.

        came: when the request did, by time.monotonic(), where not now; its budget counts from then.
        """
        came = time.monotonic() if came is None else came
        if not background:
            self.check_room(question, came)
        if tuple(x.shape) != self.shape:
            raise ArgumentError("input", f"must have the shape {self.shape}", tuple(x.shape), "Resize it.")
        asked = Asked(
            self._identify(x),
            x,
            None,
            "request",
            True,
            question=question,
            test=self.test(question),
            background=background,
            watch=watch,
            timing=Timing(came),
        )
        asked.answer.set_running_or_notify_cancel()  # nobody who waits for it can cancel it for others
        self._enqueue(asked)
        return asked

    @abstractmethod
    def close(self) -> None:
        """Take no more requests, answer those that are there within ``drain`` seconds, and end; jobs stay undone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def test(self, question: Question) -> Anytime:
        """The procedure that answers a question."""
        return self._tests(question.alpha, question.radius)

    def _test_of(self, alpha: float, radius: float | None) -> Anytime:
        test = replace(self._usual, alpha=alpha, radii=() if radius is None else (radius,))
        best = self.largest_radius(alpha)
        if radius is not None and radius > best:
            rule = f"cannot be more than {best:.4g}, what {test.n} draws that all agree would prove"
            raise ArgumentError("radius", rule, radius, "Ask for less, or for none.")
        test.start(1, self._given)  # whatever it refuses is refused here, not where others wait
        return test

    def largest_radius(self, alpha: float) -> float:
        """What draws that all agree would prove."""
        return replace(self._usual, alpha=alpha).best_case(self._given)

    def check_room(self, question: Question, came: float) -> None:
        """Refuse what could not be answered in time, before anything is decoded for it; came: when it did."""
        if self.broken:
            raise Gone("needs a model that stays as it was", self.broken, "The operator must start it anew.")
        load = self.load
        if not load.in_work:  # with nothing to do, what took long before may not now
            return
        ahead = load.waiting + (load.in_work >= load.slots)
        wait = ahead / load.slots * load.stay
        needed = time.monotonic() - came + wait + load.least
        if needed > PATIENCE * (question.seconds or np.inf):
            raise Busy(f"would take {needed:.2g} s to a first answer", f"{question.seconds:g} s", max(1.0, wait))

"""Worker: a certification at work in a process of its own, fed with inputs and asked for what it found."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, final

import torch
from torch import Tensor

from ringfence.data import Input
from ringfence.driver import Progress
from ringfence.errors import ClassifierError, ModelError, RingfenceError
from ringfence.extending import plugin_digests
from ringfence.noise.checked import checked_kernel
from ringfence.noise.philox import REFERENCES
from ringfence.record import Record
from ringfence.same_network import Asked, grey
from ringfence.sampling import Answered, ForwardPlan, Question, count_classes, pick_device
from ringfence.version import __version__
from ringfence.work import Execution, Work

REPORT_SECONDS = 0.25
"""Records and progress are told together, so often at most."""

ROUNDED = 1e-5
"""Of the largest number that was drawn."""

HUNGRY_BELOW = 4
"""Inputs left here when more are asked for."""


@final
@dataclass(frozen=True)
class Parcel:
    """Work as it travels: without inputs, and without the network where the other side can load it itself.

    Of a network of the program weights are sent and code is not: each side imports its own, as it does the libraries
    that any network is made of. So the driver's answers travel too, and a worker's must be the same; so must its
    plugins, and what its lift and noise make of some input: a library of another version may draw otherwise.
    """

    work: Work
    folder: str
    versions: tuple[str, str]
    plugins: dict[str, str]
    some: Tensor
    drawn: Tensor

    @classmethod
    def of(cls, work: Work, first: Input) -> Parcel:
        """The driver's side: calls back into its process stay there. first: an input, for its shape alone."""
        here = work.execution
        alone = Execution(here.device, here.batch, here.compile, here.autotune, here.draws, here.plan)
        module = torch.nn.Identity() if work.origin is not None else work.classifier
        answered = work.answered or _answered(work, tuple(first.x.shape))
        sent = replace(work, classifier=module, inputs=(), execution=alone, answered=answered)
        some = _some(tuple(first.x.shape), work.noise.law.lattice)
        beside = (plugin_digests(), some, _drawn(work, some))
        return cls(sent, str(Path.cwd()), (__version__, torch.__version__), *beside)

    def unpacked(self) -> Work:
        """The worker's side: the network is loaded here, and must be the one the driver has."""
        here = (__version__, torch.__version__)
        if here != self.versions:
            remedy = "Install the same versions of ringfence and torch everywhere."
            raise ModelError("versions", f"must be the driver's, {self.versions}", here, remedy)
        ours, remedy = plugin_digests(), "Give all machines the same plugins and libraries."
        if other := [name for name, digest in self.plugins.items() if ours.get(name) != digest]:
            raise ModelError("plugins", "must be the driver's", f"other code of {', '.join(other)}", remedy)
        if Path(self.folder).is_dir():
            os.chdir(self.folder)  # names of files are the driver's
        if not _same(_drawn(self.work, self.some), self.drawn):
            rule, received = "must make of an input what the driver's do", "other numbers from the same key"
            raise ModelError("noise and lift", rule, received, remedy)
        origin = self.work.origin
        work = self.work if origin is None else replace(self.work, classifier=origin.classifier())
        if work.answered is not None:
            work.answered.check(work.classifier, pick_device(work.execution.device))
        return work


def _answered(work: Work, shape: tuple[int, ...]) -> Answered | None:
    """What the driver's network says of grey inputs of this shape; None where it takes none."""
    with suppress(ClassifierError):
        device, lifted = pick_device(work.execution.device), work.lift.at(grey(shape, work.noise.law.lattice), -1)
        classes = work.num_classes or count_classes(work.classifier, lifted, device, work.lanes)
        return Asked(replace(work, num_classes=classes), shape).begin()
    return None


def _some(shape: tuple[int, ...], lattice: int | None) -> Tensor:
    """An input of which no two neighbours are the same, on the lattice if there is one: a map may lose a grey one."""
    steps = lattice or 2
    return (torch.arange(math.prod(shape)) % (steps + 1)).reshape(shape).to(torch.float32) / steps


def _drawn(work: Work, some: Tensor) -> Tensor:
    """What lift and noise make of it, on the host, by a key that no certificate uses."""
    return Question.about([some], [work.lift.at(some, -1)], work.noise, work.seed, 1).noisy


def _same(found: Tensor, wanted: Tensor) -> bool:
    """Up to the last digits, in which machines differ."""
    return found.shape == wanted.shape and bool((found - wanted).abs().max() <= ROUNDED * wanted.abs().max())


@final
@dataclass(frozen=True)
class Report:
    """What a worker tells: records by input, draws so far, the plan it runs by, hunger, and how its round ended.

    ended: None while it goes on, "" for a round that came to its end, otherwise the error. kind: of device; workers of
    one kind draw the same noise.
    """

    records: list[list[Record]]
    draws: int
    batches: int
    plan: dict[str, Any] | None
    hungry: bool
    ended: str | None
    kind: str = ""


def drawing_kind(work: Work) -> str:
    """What the draws of a work depend on beside their keys: nothing where they are exact, else the device, and on CUDA
    whether our own kernel runs there."""
    if work.noise.law.lattice is not None:
        return "exact"
    device, family = pick_device(work.execution.device), work.noise.law.family
    ours = family in REFERENCES and checked_kernel("ringfence.noise.kernel", device, family) is not None
    return f"{device.type}, {'kernel' if ours else 'torch'}"


@final
class Worker:
    """One process's share. A round is one pass of the driver over inputs that come while it runs."""

    def __init__(self, parcel: Parcel) -> None:
        self._work = parcel.unpacked()
        self._plan: dict[str, Any] | None = None
        self._kind = drawing_kind(self._work)

    def begin(self, plan: dict[str, Any] | None, items: list[Input], last: bool) -> None:
        """Start a round with some inputs, by a plan that is known already or by the fastest one here."""
        self._inbox: SimpleQueue[Input | None] = SimpleQueue()
        self._found: SimpleQueue[list[Record]] = SimpleQueue()
        self._hungry, self._closed = threading.Event(), False
        self._news = threading.Event()
        self._draws, self._batches = 0, 0
        self._ended: str | None = None
        self.feed(items, last)
        threading.Thread(target=self._round, args=(plan,), daemon=True).start()

    def feed(self, items: list[Input], last: bool) -> None:
        """More inputs; last: the round ends when all are decided."""
        self._closed = last
        self._hungry.clear()
        for item in items:
            self._inbox.put(item)
        if last:
            self._inbox.put(None)

    def report(self, patience: float) -> Report:
        """What is new since the last report; waits up to so many seconds until there is something."""
        if self._news.wait(patience) and self._ended is None and not self._hungry.is_set():
            time.sleep(REPORT_SECONDS)  # more will come along soon, and every message costs the driver time
        self._news.clear()
        ended, records = self._ended, list[list[Record]]()  # the end is read first: nothing comes after it
        while True:
            try:
                records.append(self._found.get_nowait())
            except Empty:
                break
        return Report(records, self._draws, self._batches, self._plan, self._hungry.is_set(), ended, self._kind)

    def _round(self, plan: dict[str, Any] | None) -> None:
        execution = replace(
            self._work.execution,
            plan=ForwardPlan.stored(plan) if plan is not None else self._work.execution.plan,
            on_plan=self._keep_plan,
            on_progress=self._progressed,
        )
        ended = ""
        try:
            records = replace(self._work, inputs=self._inputs(), execution=execution).records()
            for _, lanes in groupby(records, lambda record: record.input_id):
                self._found.put(list(lanes))
                self._news.set()
        except RingfenceError as error:
            ended = str(error)
        except Exception as error:  # whatever the user's network raises is told, and the driver decides
            ended = f"{type(error).__name__}: {error}"
        self._ended = ended
        self._news.set()

    def _inputs(self) -> Iterator[Input]:
        while True:
            if self._inbox.qsize() < HUNGRY_BELOW and not self._closed and not self._hungry.is_set():
                self._hungry.set()
                self._news.set()
            item = self._inbox.get()
            if item is None:
                return
            yield item

    def _keep_plan(self, plan: ForwardPlan) -> None:
        self._plan = plan.settings()
        self._news.set()

    def _progressed(self, progress: Progress) -> None:
        self._draws, self._batches = progress.draws, self._batches + 1

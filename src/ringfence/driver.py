"""The driver: checks a work before the first draw, and runs the loop in which its inputs become records.

Users call ``certify`` or run a ``Certification`` (certification.py), which hand their parts on as ``Work`` (work.py).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar, final

import torch
from torch import Tensor

from ringfence.beginning import keep_freed_memory
from ringfence.data import Input
from ringfence.errors import ArgumentError, ClassifierError, DataError
from ringfence.in_flight import DrawRequests
from ringfence.lift import Identity, Lift
from ringfence.mechanisms import Mechanism, check_together
from ringfence.noise import Noise
from ringfence.noise.exact import IN_FLOATS, onto_lattice
from ringfence.procedures import Given
from ringfence.record import Record
from ringfence.sampling import (
    Facts,
    Finished,
    Sampler,
    check_rounding,
    check_seed,
    count_classes,
    in_front,
    on_device,
    pick_device,
    readouts,
    remembered_answers,
)

if TYPE_CHECKING:
    from ringfence.work import Work

Item = TypeVar("Item")
Result = TypeVar("Result")

CHECKED_ON = 8
"""Inputs on noisy copies of which the classifier is checked before the first draw."""


@dataclass(frozen=True)
class Progress:
    """How far a run is: inputs decided, draws so far, seconds since the start."""

    inputs: int
    draws: int
    seconds: float


@final
@dataclass(frozen=True)
class Begun:
    """A classifier that was checked, ready to draw.

    sampler: what draws; given: what procedures know of the run; facts: what is asked of clean inputs, before any noise.
    """

    sampler: Sampler
    given: Given
    facts: Facts


def begin(work: Work, samples: Sequence[Tensor], slots: int = 0) -> Begun:
    """Check everything before the first draw; the work's inputs are not asked for.

    samples: some inputs, lifted, on noisy copies of which the classifier is asked; slots: for at least so many at once.
    """
    bound = norm_bound(work.lift, work.mechanisms[0], work.noise)
    check_seed(work.seed)
    check_together(work.mechanisms, work.noise.law)
    device = pick_device(work.execution.device)
    if device.type == "cpu":
        keep_freed_memory()
    with in_front(device):
        return _begin_on(work, samples, slots, device, bound)


def _begin_on(work: Work, samples: Sequence[Tensor], slots: int, device: torch.device, bound: float) -> Begun:
    noise, mechanisms, procedure, execution = work.noise, work.mechanisms, work.procedure, work.execution
    shape = tuple(samples[0].shape)
    classifier = on_device(work.classifier, device)  # the user's own stays as and where it is
    found = count_classes(classifier, samples[0], device, work.lanes)
    if work.num_classes not in (None, found):
        rule = f"must return {work.num_classes} scores per input"
        raise ClassifierError("classifier", rule, f"{found} scores", "Check `num_classes` and the model's last layer.")
    check_answers = remembered_answers(classifier, samples, device, found)
    plan = execution.planned(classifier, shape, found, device, work.precision)
    counted = readouts(procedure.needs, classifier, procedure.name)
    given = Given(found, noise.law.over(math.prod(shape)), mechanisms[0], bound)
    procedure.start(1, given)  # refuses what cannot be certified before anything is sampled
    keep = execution.plan is not None
    how = (plan, device, shape, work.seed, execution.on_plan, samples, keep, slots)
    sampler = Sampler(classifier, noise, counted, found, *how)
    check_answers()  # measuring and checking asked it often
    check_rounding(work.classifier, classifier, sampler.noisy)
    if work.lanes and len(work.lanes) != sampler.lanes:
        rule = f"must give one lane for each name, {', '.join(work.lanes)}"
        raise ClassifierError("classifier", rule, f"{sampler.lanes} lanes", "Use certify() with a name for each lane.")
    execution.on_plan(sampler.plan)
    if device.type == "cuda" or sampler.plan.compile or sampler.plan.refuses("compile"):
        execution.on_remark(execution.in_words(sampler.plan, device))
    return Begun(sampler, given, Facts(classifier, device))


class DrawingSampler(DrawRequests, Protocol):
    """The same as the loop sees it: what it draws counts once it is confirmed (sampling/sampler.py)."""

    @property
    def drawn(self) -> int:
        """Draws until now."""

    @property
    def batches(self) -> int:
        """Batches until now."""

    @property
    def confirmed(self) -> int:
        """The last batch known to come from an unchanged classifier."""

    @property
    def hungry(self) -> bool:
        """Whether another input should be admitted."""

    def step(self) -> Finished | None:
        """Run one batch; what is complete by now, or None when nothing is queued or travelling."""

    def confirm(self) -> None:
        """Find out about the batches that are not confirmed."""


class Flight(Protocol):
    """The inputs in work, under one procedure (in_flight.py) or several."""

    def open(self, item: Input, facts: Mapping[str, int] | None = None) -> int:
        """Begin with an input; returns its slot."""

    def settle(self, finished: Finished) -> Iterator[tuple[Input, list[Record]]]:
        """Take in complete requests, and yield the decided inputs with their records."""


def confirmed(
    sampler: DrawingSampler,
    flight: Flight,
    facts: Facts,
    items: Iterator[tuple[Input, Mapping[str, int]] | None],
    on_progress: Callable[[Progress], None],
) -> Iterator[tuple[Input, list[Record]]]:
    """All inputs with their records, each once the classifier was seen unchanged after its last draw.

    It ends when everything is decided and there are no more items, or None of them for now: where others come later it
    may be called again.
    """
    begin, decided = time.perf_counter(), 0
    ready: list[tuple[Input, list[Record]]] = []
    for new, seen in batches(sampler, items, lambda item: flight.open(*item), flight.settle):
        decided += new
        on_progress(Progress(decided, sampler.drawn, time.perf_counter() - begin))
        ready += seen
        if ready and facts.due(sampler.drawn):
            facts.confirm([item.id for item, _ in ready], sampler.drawn)
            yield from ready
            ready.clear()
    if ready:
        facts.confirm([item.id for item, _ in ready], sampler.drawn)
        yield from ready


def batches(
    sampler: DrawingSampler,
    items: Iterator[Item | None],
    begin: Callable[[Item], object],
    settle: Callable[[Finished], Iterable[Result]],
) -> Iterator[tuple[int, list[Result]]]:
    """Draw until everything is decided: how many results each batch brought, and those that count from now on, because
    the classifier was seen unchanged after the last draw of each.

    begin: asks the sampler for draws of an item; settle: the results that complete requests bring.
    """
    waiting: deque[tuple[int, Result]] = deque()
    while True:
        while sampler.hungry and (item := next(items, None)) is not None:
            begin(item)
        known, ready = len(waiting), list[Result]()
        if (finished := sampler.step()) is None:
            sampler.confirm()
        else:
            waiting.extend((sampler.batches, one) for one in settle(finished))
        new = len(waiting) - known
        # If it is found to have changed, an error ends the run here, and what is waiting is dropped.
        while waiting and waiting[0][0] <= sampler.confirmed:
            ready.append(waiting.popleft()[1])
        yield new, ready
        if finished is None:
            return


def distinct(inputs: Iterable[Input]) -> Iterator[Input]:
    """The inputs, no id twice: it would reuse the same noise, a second chance on the same draws or a duplicate."""
    seen: set[int] = set()
    for item in inputs:
        if item.id in seen:
            raise DataError("inputs", "ids must be distinct", item.id, "Give every input its own id.")
        seen.add(item.id)
        yield item


def norm_bound(lift: Lift, mechanism: Mechanism, noise: Noise) -> float:
    """By how much the lift stretches distances in the mechanism's norm; refused where it has no bound there.

    Lifted points are not on the lattice that exact noise needs them on.
    """
    if noise.law.lattice is not None and not isinstance(lift, Identity):
        rule = "must be added to the input itself to be exact: a lift takes inputs off the lattice"
        raise ArgumentError("noise", rule, f"{noise.law}, lift {lift.name}", f"Use {IN_FLOATS}, or no lift.")
    bound = lift.bound_in(mechanism.norm)
    if bound is None:
        rule = f"has no certified bound in {mechanism.norm}, the norm of {mechanism.spelled}"
        raise ArgumentError("lift", rule, lift.settings()["name"], "Add the noise to the input itself.")
    return bound


def on_lattice(inputs: Iterable[Input], lattice: int) -> Iterator[Input]:
    """The inputs, each seen to lie on the lattice."""
    for item in inputs:
        yield replace(item, x=onto_lattice(f"input {item.id}", item.x, lattice))


def lifted(items: Sequence[Input], lift: Lift) -> list[Tensor]:
    """The first inputs as the network sees them, without noise; those of another shape than the first are left out."""
    alike = [one for one in items if one.x.shape == items[0].x.shape]
    return [lift.at(one.x, one.id) for one in alike]

"""The driver: a classifier, a noise, a procedure and mechanisms -> a stream of records.

Users call ``certify`` or run a ``Certification`` (certification.py), which hand their parts on as ``Work``.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol, final

import torch
from torch import Tensor, nn

from ringfence.data import Input
from ringfence.data.dataset import warn_of_inputs
from ringfence.errors import ArgumentError, ClassifierError, DataError
from ringfence.in_flight import Draws, InFlight
from ringfence.lift import Identity, Lift
from ringfence.mechanisms import Mechanism, check_together
from ringfence.noise import Noise
from ringfence.noise.exact import IN_FLOATS, onto_lattice
from ringfence.procedures import Given, Procedure
from ringfence.record import Record
from ringfence.sampling import (
    Facts,
    Finished,
    ForwardPlan,
    Precision,
    Sampler,
    check_memory,
    check_seed,
    count_classes,
    fastest_plan,
    on_device,
    pick_device,
    readouts,
)

if TYPE_CHECKING:
    from ringfence.work import Engine, Origin

CHECKED_ON = 8
"""Inputs on noisy copies of which the classifier is checked before the first draw."""


@dataclass(frozen=True)
class Progress:
    """How far a run is: inputs decided, draws so far, seconds since the start."""

    inputs: int
    draws: int
    seconds: float


def ignore(told: object) -> None:
    """Nobody listens; by name, so that an execution can be sent to another process."""


def refuse_failed(input_id: int, reason: str) -> None:
    """An input that the classifier cannot answer ends the run, unless somebody keeps the reason."""
    raise ClassifierError("classifier", f"must answer input {input_id}", reason, "Leave that input out.")


@final
@dataclass(frozen=True)
class Execution:
    """Where and how the network runs; none of it changes what a certificate means.

    batch: rows per forward, None measures; plan: a stored plan to go on with, overriding batch.
    unlocked: write a run folder although its disk knows no locks. engine: itself or its name, see ``rf.Engine``.
    check: look at a few inputs first, whether data and classifier have the same units and classes (unit_check.py).
    failed_before: inputs that an engine gave up in an earlier session; on_failed: told those of this one, and why;
    on_remark: what a user may want to know on the way.
    compile; autotune, of a compiled network: None decides by draws, those expected of the whole run (0: unknown): both
    pay where these take long on a CUDA device.
    """

    device: str = "auto"
    batch: int | None = None
    compile: bool | None = None
    autotune: bool | None = None
    draws: int = 0
    plan: ForwardPlan | None = None
    unlocked: bool = False
    engine: str | Engine = "local"
    check: bool = True
    failed_before: frozenset[int] = frozenset()
    on_plan: Callable[[ForwardPlan], None] = field(default=ignore)
    on_progress: Callable[[Progress], None] = field(default=ignore)
    on_failed: Callable[[int, str], None] = field(default=refuse_failed)
    on_remark: Callable[[str], None] = field(default=ignore)

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise ArgumentError("batch", "must be auto or a number of rows", self.batch, "Use auto.")

    def expecting(self, inputs: int, procedure: Procedure) -> Execution:
        """With the draws of so many inputs, unless they were said: all of n, or nothing is known where tests stop."""
        each = 0 if procedure.target is not None else procedure.most_draws
        return replace(self, draws=self.draws or inputs * each)

    def planned(
        self,
        classifier: nn.Module,
        shape: tuple[int, ...],
        num_classes: int,
        device: torch.device,
        precision: Precision,
    ) -> ForwardPlan:
        """The given plan, if there is one, else the fastest here; of this precision, which is part of the claim."""
        if precision == "tf32" and device.type != "cuda":  # nor by a plan of another session, or of another worker
            rule, remedy = "tf32 is arithmetic of CUDA devices", "Use fp32, or auto, which knows the device."
            raise ArgumentError("precision", rule, f"tf32 on {device}", remedy)
        if self.plan is not None:
            if self.plan.precision != precision:
                rule, remedy = f"must have the precision certified, {precision}", f"Certify with {self.plan.precision}."
                raise ArgumentError("plan", rule, self.plan.precision, remedy)
            check_memory(self.plan.batch, shape, device)
            return self.plan
        how = (precision, self.compile, self.batch, self.autotune, self.draws)
        return fastest_plan(classifier, shape, num_classes, device, *how)

    def in_words(self, plan: ForwardPlan, device: torch.device) -> str:
        """The plan that runs on a device, and why it is that one, in a line."""
        if self.plan is not None:
            why = "as before"
        elif plan.compile or self.compile is not None:
            why = "as asked" if self.compile is not None else f"compiling pays for {self.draws:,} draws"
        else:
            why = "measured; " + ("too short to compile" if self.draws else "draws unknown, so not compiled")
        refused = "".join(f"; without {one}" for one in plan.refused)
        return f"plan on {device}: {plan.in_words} ({why}){refused}"


@final
@dataclass(frozen=True)
class Work:
    """Everything that records of some inputs depend on: the parts of a certification, loaded.

    classifier: (B, *lifted shape) -> scores (B, K) or (B, lanes, K); lanes: their names, needed where a plain module
    has several. The first mechanism decides; the others add further radii from the same bounds at no cost.
    The noise of draw i of an input depends on (seed, its id, stage, i) alone, so that any division of the inputs gives
    the same records. origin is None where the classifier is a network of the program, which only travels as it is.
    """

    classifier: nn.Module
    inputs: Iterable[Input]
    noise: Noise
    procedure: Procedure
    mechanisms: tuple[Mechanism, ...]
    lift: Lift
    num_classes: int | None
    lanes: tuple[str, ...]
    precision: Precision
    seed: int
    config_hash: str
    execution: Execution
    origin: Origin | None = None

    def records(self) -> Iterator[Record]:
        """Certified here, in this thread; records come as inputs are decided, all lanes of an input together.

        A record comes when rows asked again have shown that the classifier is still the one that was checked at the
        start; if it is not, a ClassifierError ends the run, and nothing decided since then comes. Nor does it if the
        run is left.
        """
        norm_bound(self.lift, self.mechanisms[0], self.noise)
        lattice = self.noise.law.lattice
        queue = iter(self.inputs) if lattice is None else on_lattice(self.inputs, lattice)
        peeked = list(islice(queue, CHECKED_ON))
        if not peeked:
            return
        warn_of_inputs(peeked)
        begun = begin(self, lifted(peeked, self.lift))
        told = (self.lanes, self.seed, self.config_hash)
        flight = InFlight(begun.engine, self.procedure, begun.given, self.mechanisms[1:], self.lift, *told)
        items = begun.facts.of(distinct(chain(peeked, queue)))
        for _, records in confirmed(begun.engine, flight, begun.facts, items, self.execution.on_progress):
            yield from records


@final
@dataclass(frozen=True)
class Begun:
    """A classifier that was checked, ready to draw: engine, what procedures are given, what is asked of inputs."""

    engine: Sampler
    given: Given
    facts: Facts


def begin(work: Work, samples: Sequence[Tensor], slots: int = 0) -> Begun:
    """Check everything before the first draw; the work's inputs are not asked for.

    samples: some inputs, lifted, on noisy copies of which the classifier is asked; slots: for at least so many at once.
    """
    noise, mechanisms, procedure, execution = work.noise, work.mechanisms, work.procedure, work.execution
    bound = norm_bound(work.lift, mechanisms[0], noise)
    check_seed(work.seed)
    check_together(mechanisms, noise.law)
    device, shape = pick_device(execution.device), tuple(samples[0].shape)
    classifier = on_device(work.classifier, device)  # the user's own stays as and where it is
    found = count_classes(classifier, samples[0], device, work.lanes)
    if work.num_classes not in (None, found):
        rule = f"must return {work.num_classes} scores per input"
        raise ClassifierError("classifier", rule, f"{found} scores", "Check `num_classes` and the model's last layer.")
    plan = execution.planned(classifier, shape, found, device, work.precision)
    counted = readouts(procedure.needs, classifier, procedure.name)
    given = Given(found, noise.law.over(math.prod(shape)), mechanisms[0], bound)
    procedure.start(1, given)  # refuses what cannot be certified before anything is sampled
    keep = execution.plan is not None
    how = (plan, device, shape, work.seed, execution.on_plan, samples, keep, slots)
    engine = Sampler(classifier, noise, counted, found, *how)
    if work.lanes and len(work.lanes) != engine.lanes:
        rule = f"must give one lane for each name, {', '.join(work.lanes)}"
        raise ClassifierError("classifier", rule, f"{engine.lanes} lanes", "Use certify() with a name for each lane.")
    execution.on_plan(engine.plan)
    if device.type == "cuda":
        execution.on_remark(execution.in_words(engine.plan, device))
    return Begun(engine, given, Facts(classifier, device))


class Drawn(Draws, Protocol):
    """An engine as the loop sees it: what it draws counts once it is confirmed (sampling/sampler.py)."""

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
    engine: Drawn,
    flight: Flight,
    facts: Facts,
    items: Iterator[tuple[Input, Mapping[str, int]]],
    on_progress: Callable[[Progress], None],
) -> Iterator[tuple[Input, list[Record]]]:
    """All inputs with their records, each once the classifier was seen unchanged after its last draw.

    It ends when everything is decided and there are no more items; where others come later it may be called again.
    """
    begin, decided = time.perf_counter(), 0
    waiting: deque[tuple[int, Input, list[Record]]] = deque()
    ready: list[tuple[Input, list[Record]]] = []
    while True:
        while engine.hungry and (item := next(items, None)) is not None:
            flight.open(*item)
        finished = engine.step()
        if finished is None:
            engine.confirm()
        else:
            for each in flight.settle(finished):
                decided += 1
                waiting.append((engine.batches, *each))
            on_progress(Progress(decided, engine.drawn, time.perf_counter() - begin))
        # If it is found to have changed, an error ends the run here, and what is waiting is dropped.
        while waiting and waiting[0][0] <= engine.confirmed:
            ready.append(waiting.popleft()[1:])
        if ready and (finished is None or facts.due(engine.drawn)):
            facts.confirm([item.id for item, _ in ready], engine.drawn)
            yield from ready
            ready.clear()
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

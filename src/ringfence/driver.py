"""The driver: a classifier, a noise, a procedure and mechanisms -> a stream of records.

Users call ``certify`` or run a ``Certification`` (certification.py), which hand their parts to ``drive``.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import final

import torch
from torch import Tensor, nn

from ringfence.data import Input
from ringfence.data.dataset import warn_of_inputs
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.in_flight import InFlight
from ringfence.lift import Identity, Lift
from ringfence.mechanisms import Mechanism, check_together
from ringfence.noise import Noise
from ringfence.noise.exact import OnLattice
from ringfence.procedures import Given, Procedure
from ringfence.record import Record
from ringfence.sampling import (
    Facts,
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
class Execution:
    """Where and how the network runs; none of it changes what a certificate means.

    batch: rows per forward, None measures; plan: a stored plan to go on with, overriding batch.
    unlocked: write a run folder although its disk knows no locks. engine: by name, see ``rf.Engine``.
    autotune: of a compiled network; None: if ``draws``, expected of the whole run (0: unknown), take long enough.
    """

    device: str = "auto"
    batch: int | None = None
    compile: bool = False
    autotune: bool | None = None
    draws: int = 0
    plan: ForwardPlan | None = None
    unlocked: bool = False
    engine: str = "local"
    on_plan: Callable[[ForwardPlan], None] = field(default=lambda plan: None)
    on_progress: Callable[[Progress], None] = field(default=lambda progress: None)

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise ArgumentError("batch", "must be auto or a number of rows", self.batch, "Use auto.")

    def planned(
        self,
        classifier: nn.Module,
        shape: tuple[int, ...],
        num_classes: int,
        device: torch.device,
        precision: Precision,
    ) -> ForwardPlan:
        """The given plan, if there is one, else the fastest here; of this precision, which is part of the claim."""
        if self.plan is not None:
            if self.plan.precision != precision:
                rule, remedy = f"must have the precision certified, {precision}", f"Certify with {self.plan.precision}."
                raise ArgumentError("plan", rule, self.plan.precision, remedy)
            check_memory(self.plan.batch, shape, device)
            return self.plan
        how = (precision, self.compile, self.batch, self.autotune, self.draws)
        return fastest_plan(classifier, shape, num_classes, device, *how)


def drive(
    classifier: nn.Module,
    inputs: Iterable[Input],
    *,
    noise: Noise,
    procedure: Procedure,
    mechanisms: Sequence[Mechanism],
    lift: Lift | None = None,
    num_classes: int | None = None,
    lanes: tuple[str, ...] = (),
    precision: Precision = "fp32",
    seed: int = 0,
    config_hash: str = "",
    execution: Execution | None = None,
) -> Iterator[Record]:
    """Certify every input; records come as inputs are decided, all lanes of an input together.

    classifier: (B, *lifted shape) -> scores (B, K) or (B, lanes, K); lanes: their names, needed where a plain module
    has several.
    The first mechanism decides; the others add further radii from the same bounds at no cost.
    The noise of draw i of an input depends on (seed, its id, stage, i) alone.
    A record comes when rows asked again have shown that the classifier is still the one that was checked at the start;
    if it is not, a ClassifierError ends the run, and nothing decided since then comes. Nor does it if the run is left.
    """
    execution, lift = execution or Execution(), lift or Identity()
    bound = norm_bound(lift, mechanisms[0], noise)
    queue = iter(inputs) if noise.law.lattice is None else on_lattice(inputs, noise.law.lattice)
    peeked = list(islice(queue, CHECKED_ON))
    if not peeked:
        return
    warn_of_inputs(peeked)
    check_seed(seed)
    check_together(mechanisms, noise.law)
    device, samples = pick_device(execution.device), lifted(peeked, lift)
    shape = tuple(samples[0].shape)
    classifier = on_device(classifier, device)  # the user's own stays as and where it is
    found = count_classes(classifier, samples[0], device, lanes)
    if num_classes not in (None, found):
        rule, remedy = f"must return {num_classes} scores per input", "Check `num_classes` and the model's last layer."
        raise ClassifierError("classifier", rule, f"{found} scores", remedy)
    num_classes = found
    plan = execution.planned(classifier, shape, num_classes, device, precision)
    counted = readouts(procedure.needs, classifier, procedure.name)
    given = Given(num_classes, noise.law.over(math.prod(shape)), mechanisms[0], bound)
    procedure.start(1, given)  # refuses what cannot be certified before anything is sampled
    keep = execution.plan is not None
    engine = Sampler(
        classifier, noise, counted, num_classes, plan, device, shape, seed, execution.on_plan, samples, keep
    )
    if lanes and len(lanes) != engine.lanes:
        rule, remedy = (
            f"must give one lane for each name, {', '.join(lanes)}",
            "Use certify() with a name for each lane.",
        )
        raise ClassifierError("classifier", rule, f"{engine.lanes} lanes", remedy)
    execution.on_plan(engine.plan)
    flight = InFlight(engine, procedure, given, mechanisms[1:], lift, lanes, seed, config_hash)
    yield from confirmed(engine, flight, Facts(classifier, device), chain(peeked, queue), execution.on_progress)


def confirmed(
    engine: Sampler, flight: InFlight, facts: Facts, inputs: Iterator[Input], on_progress: Callable[[Progress], None]
) -> Iterator[Record]:
    """Records of all inputs, each once the classifier was seen unchanged after its last draw."""
    begin, decided, items = time.perf_counter(), 0, facts.of(inputs)
    waiting: deque[tuple[int, list[Record]]] = deque()
    ready: list[list[Record]] = []
    while True:
        while engine.hungry and (item := next(items, None)) is not None:
            flight.open(*item)
        finished = engine.step()
        if finished is None:
            engine.confirm()
        else:
            for records in flight.settle(finished):
                decided += 1
                waiting.append((engine.batches, records))
            on_progress(Progress(decided, engine.drawn, time.perf_counter() - begin))
        # If it is found to have changed, an error ends the run here, and what is waiting is dropped.
        while waiting and waiting[0][0] <= engine.confirmed:
            ready.append(waiting.popleft()[1])
        if ready and (finished is None or facts.due(engine.drawn)):
            facts.confirm([records[0].input_id for records in ready], engine.drawn)
            yield from chain.from_iterable(ready)
            ready.clear()
        if finished is None:
            return


def norm_bound(lift: Lift, mechanism: Mechanism, noise: Noise) -> float:
    """By how much the lift stretches distances in the mechanism's norm; lifts are bounded in l2 alone.

    Lifted points are not on the lattice that exact noise needs them on.
    """
    if isinstance(lift, Identity):
        return lift.norm_bound
    if noise.law.lattice is not None:
        rule = "must be added to the input itself to be exact: a lift takes inputs off the lattice"
        raise ArgumentError("noise", rule, f"{noise.law}, lift {lift.name}", "Use float noise, or no lift.")
    if mechanism.norm != "l2":
        rule = f"has no certified bound in {mechanism.norm}, the norm of {mechanism.name}"
        raise ArgumentError("lift", rule, lift.name, "Add the noise to the input itself.")
    return lift.norm_bound


def on_lattice(inputs: Iterable[Input], lattice: int) -> Iterator[Input]:
    """The lattice points next to the inputs, with a warning at the end if that moved any."""
    move = OnLattice(lattice)
    try:
        for item in inputs:
            yield replace(item, x=move(f"input {item.id}", item.x))
    finally:
        move.tell()


def lifted(items: Sequence[Input], lift: Lift) -> list[Tensor]:
    """The first inputs as the network sees them, without noise; those of another shape than the first are left out."""
    alike = [one for one in items if one.x.shape == items[0].x.shape]
    return [lift.at(one.x, one.id) for one in alike]

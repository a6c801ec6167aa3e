"""Work: everything that records of some inputs depend on; Execution: how it is done; Engine: where, all the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain, islice
from typing import Any, ClassVar, final

import torch
from torch import nn

from ringfence.data import Input
from ringfence.data.dataset import warn_of_inputs
from ringfence.digests import changes
from ringfence.driver import CHECKED_ON, Progress, begin, confirmed, distinct, lifted, on_lattice
from ringfence.errors import LOAD_PLUGIN, ArgumentError, ClassifierError, ModelError, did_you_mean
from ringfence.in_flight import InFlight
from ringfence.lift import Lift
from ringfence.mechanisms import Mechanism
from ringfence.models import load_model
from ringfence.models.grammar import Tree
from ringfence.noise import Noise
from ringfence.procedures import Procedure
from ringfence.record import Record
from ringfence.sampling import Answered, ForwardPlan, Precision, check_memory, fastest_plan, measures, pick_device


def ignore(told: object) -> None:
    """Do nothing with a message. A named function, because a lambda could not be sent to another process."""


def refuse_failed(input_id: int, reason: str) -> None:
    """An input that the classifier cannot answer ends the run, unless somebody keeps the reason."""
    raise ClassifierError("classifier", f"must answer input {input_id}", reason, "Leave that input out.")


@final
@dataclass(frozen=True)
class Execution:
    """Where and how the network runs; none of it changes what a certificate means.

    batch: rows per forward, None: as usual, of long runs measured; plan: a stored plan to go on with, overriding batch.
    unlocked: write a run folder although its disk knows no locks. engine: itself or its name, see ``rf.Engine``.
    check: look at a few inputs first, whether data and classifier have the same units and classes (``unit_check``).
    failed_before: inputs that an engine gave up in an earlier session; on_failed: told those of this one, and why;
    on_remark: what a user may want to know on the way.
    compile, autotune (of a compiled network, on CUDA): where None, both are done if they pay, which they do for many
    draws; draws: how many are expected of the whole run, 0 if unknown.
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

    @property
    def measures(self) -> bool:
        """Whether finding the plan takes time, so that one found before is better kept; else it suits each run."""
        return bool(self.compile) or measures(pick_device(self.device), self.draws)

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
        how = (precision, self.compile, self.batch, self.autotune, self.draws, self.on_remark)
        return fastest_plan(classifier, shape, num_classes, device, *how)

    def in_words(self, plan: ForwardPlan, device: torch.device) -> str:
        """The plan that runs on a device, and why it is that one, in a line."""
        if self.plan is not None:
            why = "as before"
        elif plan.compile or self.compile is not None:
            why = "as asked" if self.compile is not None else f"compiling pays for {self.draws:,} draws"
        elif plan.refuses("compile"):
            why = "measured"
        else:
            why = "measured; " + ("too short to compile" if self.draws else "draws unknown, so not compiled")
        refused = "".join(f"; without {one}" for one in plan.refused)
        return f"plan on {device}: {plan.in_words} ({why}){refused}"


@final
@dataclass(frozen=True)
class Origin:
    """How another process loads the very classifier: its tree, what goes with it, and the digest it must have."""

    tree: Tree
    beside: Mapping[str, Any]
    shape: tuple[int, ...]
    digest: str

    def classifier(self) -> nn.Module:
        """The module behind the noise; refused if it is another one."""
        model = load_model(self.tree, **self.beside)
        if model.digest != self.digest:
            other, remedy = changes(model.digest, self.digest), "Give all machines the same weights and code."
            raise ModelError(model.spec, "must be the driver's network", f"one with other {other}", remedy)
        return model.placed(self.shape)[0]


@final
@dataclass(frozen=True)
class Work:
    """Everything that records of some inputs depend on: the parts of a certification, loaded.

    classifier: (B, *lifted shape) -> scores (B, K) or (B, lanes, K); lanes: their names, needed where a plain module
    has several. The first mechanism decides; the others add further radii from the same bounds at no cost.
    The noise of draw i of an input depends on (seed, its id, stage, i) alone, so that any division of the inputs gives
    the same records. origin is None where the classifier is a network of the program, which only travels as it is.
    answered: what a classifier elsewhere must say to be this one.
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
    answered: Answered | None = None

    def records(self) -> Iterator[Record]:
        """Certified here, in this thread; records come as inputs are decided, all lanes of an input together.

        A record comes when rows asked again have shown that the classifier is still the one that was checked at the
        start; if it is not, a ClassifierError ends the run, and nothing decided since then comes. Nor does it if the
        run is left.
        """
        lattice = self.noise.law.lattice
        queue = iter(self.inputs) if lattice is None else on_lattice(self.inputs, lattice)
        peeked = list(islice(queue, CHECKED_ON))
        if not peeked:
            return
        warn_of_inputs(peeked)
        begun = begin(self, lifted(peeked, self.lift))
        told = (self.lanes, self.seed, self.config_hash)
        flight = InFlight(begun.sampler, self.procedure, begun.given, self.mechanisms[1:], self.lift, *told)
        items = begun.facts.of(distinct(chain(peeked, queue)))
        for _, records in confirmed(begun.sampler, flight, begun.facts, items, self.execution.on_progress):
            yield from records


class Engine(ABC):
    """Says where and in which portions work is done; all lanes of an input come together, in one piece."""

    name: ClassVar[str]

    @abstractmethod
    def records(self, work: Work) -> Iterator[Record]:
        """Records of all inputs, in any order; ``replace(work, inputs=some).records()`` are those of some."""


@final
class Local(Engine):
    """This process: one driver for all inputs, which fills whole batches."""

    name: ClassVar[str] = "local"

    def records(self, work: Work) -> Iterator[Record]:
        """As they are decided."""
        return work.records()


ENGINES: dict[str, Engine] = {Local.name: Local()}
ELSEWHERE = {"ray": "ringfence.engines.ray"}
"""Engines of rooms above, which enter themselves in ENGINES when they are first asked for, and imported."""


def engine_named(name: str | Mapping[str, Any] | Engine) -> Engine:
    """The engine of a name, or of a mapping of its name and settings; an engine is returned as it is."""
    if isinstance(name, Engine):
        return name
    if isinstance(name, Mapping):
        given = dict(name)
        engine = engine_named(str(given.pop("name", "ray")))  # no other engine of the house has settings
        known = _settings_of(engine)
        if unknown := [key for key in given if key not in known]:
            rule = f"is no setting of the engine {engine.name}, which has {', '.join(known) or 'none'}"
            raise ArgumentError(str(unknown[0]), rule, repr(given[unknown[0]]), "Leave it out, or name another engine.")
        return replace(engine, **given) if given else engine  # type: ignore[type-var]
    if name not in ENGINES and name in ELSEWHERE:
        import_module(ELSEWHERE[name])
    if name not in ENGINES:
        known = dict.fromkeys([*ENGINES, *ELSEWHERE])
        remedy = did_you_mean(name, known, f"Use local, or {LOAD_PLUGIN}")
        raise ArgumentError("engine", f"must be one of {', '.join(known)}", repr(name), remedy)
    return ENGINES[name]


def engine_written(engine: str | Engine) -> Any:
    """The name of an engine, with the settings that differ from its defaults: what job files hold."""
    if isinstance(engine, str):
        return engine
    told = {name: value for name, usual in _settings_of(engine).items() if (value := getattr(engine, name)) != usual}
    return {"name": engine.name, **told} if told else engine.name


def _settings_of(engine: Engine) -> dict[str, Any]:
    """The settings of an engine, with their defaults: the fields of a dataclass."""
    return {one.name: one.default for one in getattr(engine, "__dataclass_fields__", {}).values()}

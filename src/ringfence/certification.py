"""Certification: the one value that says what is certified. Everything else makes it or uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from torch import nn

from ringfence.data import Dataset, Input
from ringfence.data.choice import Data
from ringfence.errors import Collected, ModelError
from ringfence.lift import Identity, Lift
from ringfence.loaded import Loaded, loaded
from ringfence.mechanisms import Mechanism, check_together, mechanisms_named
from ringfence.models import lanes_of, root_is_sound
from ringfence.models.compose import Part, tree_of
from ringfence.models.grammar import Live, Tree, live_places, with_live
from ringfence.named_parts import (
    check_kinds,
    check_numbers,
    check_tree,
    fitted_procedure,
    noise_of,
    resolved_precision,
    undivided,
)
from ringfence.noise import Noise
from ringfence.procedures import EnsembleAfterSmoothing, Fixed, Given, Procedure
from ringfence.record import Lane, Record
from ringfence.sampling import Precision, pick_device
from ringfence.stats.noise_law import GAUSSIAN
from ringfence.store import RunConfig, RunFolder
from ringfence.store.claims import mechanisms_in, procedure_in
from ringfence.unit_check import check_units, peeked
from ringfence.work import Execution, Origin, Work, engine_named

if TYPE_CHECKING:
    from ringfence.engines.into_folder import Started

Mechanisms = Mechanism | str | Sequence[Mechanism | str]


@final
@dataclass(frozen=True, init=False, eq=False)
class Certification:
    """A smoothed classifier, the inputs, and how what is claimed of them is proved; nothing is loaded yet.

    classifier: a tree of models, as text or built in Python, or any network; data: see ``Data``; the first mechanism
    decides, None is the tight one for the noise; procedure.alpha is for each lane, or with split_alpha for all lanes
    together; precision ``auto`` is resolved here and never stored; mean, std: a normalisation before every source of
    the tree; lift, lanes: of a network of the program, whose tree says neither; expected: of a stored config, what was
    found when it was made, and must be found again. Constructing it checks everything together, and tells all of what
    is wrong at once.
    """

    classifier: Tree
    data: Data
    noise: Noise
    procedure: Procedure
    mechanisms: tuple[Mechanism, ...]
    precision: Precision
    split_alpha: bool
    seed: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    classes: int | None
    lift: Lift | None
    names: tuple[str, ...]
    expected: Mapping[str, Any]

    def __init__(
        self,
        classifier: Part | Mapping[str, Any],
        data: Any = "default",
        *,
        noise: Noise,
        procedure: Procedure | None = None,
        mechanism: Mechanisms | None = None,
        precision: str = "auto",
        split_alpha: bool = False,
        seed: int = 0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        classes: int | None = None,
        lift: Lift | None = None,
        lanes: Sequence[str] = (),
    ) -> None:
        wrong = Collected()
        tree = wrong.ask(lambda: tree_of(classifier))
        several = chosen_mechanisms(mechanism, noise)
        check_kinds(noise, procedure or Fixed(), several)
        chosen = {
            "classifier": tree,
            "data": Data.of(data),
            "noise": noise,
            "procedure": procedure or Fixed(),
            "mechanisms": several,
            "precision": resolved_precision(precision),
            "split_alpha": split_alpha,
            "seed": seed,
            "mean": None if mean is None else tuple(mean),
            "std": None if std is None else tuple(std),
            "classes": classes,
            "lift": lift,
            "names": tuple(lanes),
            "expected": {},
        }
        for name, value in chosen.items():
            object.__setattr__(self, name, value)
        with wrong:
            check_numbers(self)
        wrong.ask(self.data.check)
        if tree is not None:
            wrong.ask(lambda: check_tree(self))
            fitting = wrong.ask(lambda: fitted_procedure(tree, self.procedure))
            object.__setattr__(self, "procedure", fitting or self.procedure)
        if not wrong.problems:
            wrong.ask(lambda: check_together(self.mechanisms, self.noise.law))
        if not wrong.problems:
            law = self.noise.law.over(1)  # inputs have more coordinates; the driver asks again when it knows them
            wrong.ask(lambda: self.test.start(1, Given(self.classes or 2, law, self.mechanisms[0])))
            wrong.ask(lambda: self.test.spent)
        wrong.tell()

    def __repr__(self) -> str:
        """As it would be written, without what goes without saying."""
        first, *beside = [one.spelled for one in self.mechanisms]
        said: dict[str, Any] = {
            "noise": self.noise,
            "procedure": self.procedure,
            "mechanism": [first, *beside] if beside else first,
        }
        said |= {"precision": self.precision, "seed": self.seed}
        optional = {name: getattr(self, name) for name in ("split_alpha", "mean", "std", "classes", "lift")}
        said |= {name: value for name, value in (optional | {"lanes": self.names}).items() if value}
        rest = ", ".join(f"{name}={value!r}" for name, value in said.items())
        return f"Certification({str(self.classifier)!r}, {self.data!r}, {rest})"

    # What follows from it

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The classifiers that are certified, each with records of its own; after smoothing there is one claim."""
        if self.procedure.name == EnsembleAfterSmoothing.name:
            return (Lane("main"),)
        return tuple(map(Lane, self.names)) or lanes_of(self.classifier)

    @property
    def lane_names(self) -> tuple[str, ...]:
        """The keys of their records."""
        return tuple(lane.name for lane in self.lanes)

    @property
    def test(self) -> Procedure:
        """The procedure of one lane: with split_alpha each has its share of alpha, so that one may be chosen later."""
        if not self.split_alpha:
            return self.procedure
        return replace(self.procedure, alpha=self.procedure.alpha / len(self.lanes))

    @property
    def sound(self) -> bool:
        """False where a published form is reproduced that proves nothing: of the procedure, or of the lift."""
        lift = self.lift is None or self.lift.sound
        return self.test.sound and lift and root_is_sound(self.classifier)

    @property
    def beside_tree(self) -> dict[str, Any]:
        """What a tree is loaded with."""
        sigma = self.noise.law.scale if self.noise.law.family == GAUSSIAN else None
        return {"num_classes": self.classes, "mean": self.mean, "std": self.std, "sigma": sigma}

    def load(self, device: str = "auto") -> Loaded:
        """Models and inputs, loaded and seen to fit each other."""
        return loaded(self, device)

    def formed(self, dataset: Dataset, lift: Lift) -> tuple[Certification, Dataset]:
        """The value with the form that its noise has for these inputs, and the inputs, which exact noise needs to lie
        on its lattice; lifted points lie on none."""
        value = self.in_form(dataset.lattice if isinstance(lift, Identity) else None)
        lattice = value.noise.law.lattice
        return value, dataset if lattice is None else dataset.on_lattice(lattice)

    def in_form(self, lattice: int | None) -> Certification:
        """The same, where the form of its noise was left open with the form for inputs on this lattice (or on none)."""
        return self._with("noise", self.noise.fitted(lattice))

    def expecting(self, content: Mapping[str, Any]) -> Certification:
        """The same, to be refused when it is loaded and its config says anything else than these entries."""
        return self._with("expected", content)

    def standing_on(self, kept: Dataset) -> Certification:
        """The same, with these inputs in place of its data, which nobody reads; its config stays."""
        return self._with("data", replace(self.data, kept=kept))

    def _with(self, name: str, part: Any) -> Certification:
        found = copy(self)
        object.__setattr__(found, name, part)
        return found

    def config(self) -> RunConfig:
        """Everything that determines the records, typed: the only thing a run folder stores about it."""
        return self.load().config

    def same_classifier(self, other: Certification) -> list[str]:
        """Why the two do not speak of one smoothed classifier; empty where they do."""
        ours, theirs = ("+".join(one.test.needs) for one in (self, other))
        read = [] if ours == theirs else [f"readout: {ours!r} and {theirs!r}"]  # mean scores may elect another class
        return [*read, *self.config().same_classifier(other.config())]

    def stream(self, execution: Execution | None = None) -> Iterator[Record]:
        """Records as inputs are decided, all lanes of an input together; nothing is written."""
        execution = execution or Execution()
        if isinstance(self.classifier, Live):
            module: nn.Module = self.classifier.module
            # A share of alpha is that of so many lanes and no more: the classifier must have those.
            names = self.lane_names if self.split_alpha else self.names
            lift, count, classes = self.lift or Identity(), self.data.count, None
            inputs: Iterator[Input]
            if isinstance(self.data.source, str | Dataset):
                value, dataset = self.formed(self.data.load(), lift)
                inputs, count, classes = iter(dataset), len(dataset), dataset.class_names
            else:  # as in a run folder, whose Dataset knows it
                inputs, lattice = self.data.on_lattice()
                value = self.in_form(lattice if isinstance(lift, Identity) else None)
            if execution.check:
                first, inputs = peeked(inputs)
                check_units(module, first, value.noise, lift, pick_device(execution.device), names, classes)
            work = value.work(module, inputs, lift, self.classes, names, execution.expecting(count, value.test))
        else:
            there = self.load(execution.device)
            if execution.check:
                there.check_units(execution.device)
            work = there.work(iter(there.dataset), execution.expecting(len(there.dataset), self.test))
        yield from engine_named(execution.engine).records(work)

    def work(
        self,
        module: nn.Module,
        inputs: Iterable[Input],
        lift: Lift,
        classes: int | None,
        lanes: tuple[str, ...],
        execution: Execution,
        config_hash: str = "",
        origin: Origin | None = None,
    ) -> Work:
        """What an engine is given: noise, procedure, mechanisms, precision and seed are the value's."""
        parts = (self.noise, self.test, self.mechanisms, lift, classes, lanes, self.precision, self.seed)
        return Work(module, inputs, *parts, config_hash, execution, origin)

    def start(self, out: str | Path, execution: Execution | None = None) -> Started:
        """The run in this folder, begun or found; its records come when it is asked for them."""
        from ringfence.engines.into_folder import start

        return start(self, out, execution)

    def run(self, out: str | Path, execution: Execution | None = None) -> RunFolder:
        """Certify into a run folder; the same again continues it."""
        return self.start(out, execution).finished()

    # To config and back

    @classmethod
    def of(
        cls, config: RunConfig, modules: Sequence[nn.Module] = (), data: Any = None, lift: Lift | None = None
    ) -> Certification:
        """What a config says. Networks, data and lifts of a program must be given again, and be what they were."""
        tree, stored = tree_of(config.classifier.tree), config.data
        places = len(live_places(tree))
        if len(modules) != places:
            rule, remedy = f"needs the {places} networks of its tree again, in their order", "Give modules=[...]."
            raise ModelError("modules", rule, f"{len(modules)} for {config.classifier.tree}", remedy)
        test = procedure_in(config)
        alpha = undivided(test.alpha, len(config.classifier.lanes)) if config.split_alpha else test.alpha
        chosen = {key: getattr(stored, key) for key in Data().choice}
        root = with_live(tree, iter(modules))
        found = Certification(
            root,
            Data(stored.source if data is None else data, **chosen),
            noise=noise_of(config.noise.model_dump()),
            procedure=replace(test, alpha=alpha),
            mechanism=mechanisms_in(config),
            precision=config.precision,
            split_alpha=config.split_alpha,
            seed=config.seed,
            mean=config.classifier.mean,
            std=config.classifier.std,
            classes=config.classifier.classes,
            lift=lift,
            lanes=config.classifier.names if isinstance(root, Live) else (),
        )
        found = found.expecting(config.model_dump())
        if modules or data is not None or lift is not None:
            found.config()  # which is seen to be the same
        return found

    def _key(self) -> tuple[Any, ...]:
        data = (
            self.data.source if isinstance(self.data.source, str) else id(self.data.source),
            *self.data.choice.values(),
        )
        proofs = (
            type(self.noise).__name__,
            str(self.noise.settings()),
            self.test,  # of a lane: several alphas divide into one number
            *(one.name for one in self.mechanisms),
        )
        lift = None if self.lift is None else str(self.lift.settings())
        rest = (self.precision, self.split_alpha, self.seed, self.mean, self.std, self.classes, self.names, lift)
        return (self.classifier, data, proofs, rest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certification) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def listed(mechanism: Mechanisms | None) -> list[Any]:
    """Each that is named or given; None stands for the one that the noise has."""
    return [*mechanism] if isinstance(mechanism, list | tuple) else [mechanism]


def chosen_mechanisms(mechanism: Mechanisms | None, noise: Noise) -> tuple[Mechanism, ...]:
    """The one that decides, which the noise has where nobody says, and those beside it; by name or themselves."""
    each = listed(mechanism)
    if not isinstance(noise, Noise):  # which is refused, and any mechanism that is none
        return tuple(one for one in each if one is not None)
    named = (mechanisms_named(one, noise.law.family) if one is None or isinstance(one, str) else [one] for one in each)
    return tuple(one for some in named for one in some)

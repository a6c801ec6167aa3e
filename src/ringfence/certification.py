"""Certification: the one value that says what is certified. Everything else makes it or uses it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

from torch import nn

from ringfence.classifiers import facts
from ringfence.data import Dataset
from ringfence.data.choice import Data
from ringfence.driver import Execution, norm_bound
from ringfence.errors import ArgumentError, Collected, ModelError
from ringfence.lift import Identity, Lift
from ringfence.mechanisms import Mechanism, check_together, neyman_pearson
from ringfence.models import LoadedModel, lanes_of, load_model, root_is_sound
from ringfence.models.compose import tree_of
from ringfence.models.grammar import Live, Tree, live_places, with_live
from ringfence.named_parts import (
    check_kinds,
    fitted_procedure,
    mechanisms_of,
    noise_of,
    resolved_precision,
    undivided,
)
from ringfence.noise import NOISES, Noise
from ringfence.procedures import EnsembleAfterSmoothing, Fixed, Given, Procedure
from ringfence.procedures import procedure as named_procedure
from ringfence.record import Lane, Record
from ringfence.sampling import ForwardPlan, Precision, check_seed, count_classes, pick_device
from ringfence.settings import check_settings
from ringfence.store import RunConfig, RunFolder
from ringfence.store.config import changed_settings, plain
from ringfence.work import Work, engine_named

if TYPE_CHECKING:
    from ringfence.engines.local import Started

Mechanisms = Mechanism | Sequence[Mechanism]


@final
@dataclass(frozen=True, init=False, eq=False)
class Certification:
    """A smoothed classifier, the inputs, and how what is claimed of them is proved; nothing is loaded yet.

    classifier: a tree of models, as text or built in Python, or any network; data: see ``Data``; the first mechanism
    decides; procedure.alpha is for each lane, or with split_alpha for all lanes together; precision ``auto`` is
    resolved here and never stored; mean, std: a normalisation before every source of the tree; lift, lanes: of a
    network of the program, whose tree says neither. Constructing it checks everything together, and tells all of what
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

    def __init__(
        self,
        classifier: str | Tree | nn.Module | Mapping[str, Any],
        data: Any = "default",
        *,
        noise: Noise,
        procedure: Procedure | None = None,
        mechanism: Mechanisms = neyman_pearson,
        precision: str = "fp32",
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
        several = (mechanism,) if isinstance(mechanism, Mechanism) else tuple(mechanism)
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
        }
        for name, value in chosen.items():
            object.__setattr__(self, name, value)
        for check in (self._check_numbers, self.data.check, *([] if tree is None else [self._check_tree])):
            wrong.ask(check)
        if tree is not None:
            fitting = wrong.ask(lambda: fitted_procedure(tree, self.procedure))
            object.__setattr__(self, "procedure", fitting or self.procedure)
        if not wrong.problems:
            wrong.ask(lambda: check_together(self.mechanisms, self.noise.law))
        if not wrong.problems:
            law = self.noise.law.over(1)  # inputs have more coordinates; the driver asks again when it knows them
            wrong.ask(lambda: self.test.start(1, Given(self.classes or 2, law, self.mechanisms[0])))
        wrong.tell()

    def _check_numbers(self) -> None:
        wrong = Collected()
        wrong.ask(lambda: check_seed(self.seed))
        wrong.ask(lambda: ForwardPlan(1, self.precision))
        wrong.ask(lambda: check_settings(self.procedure))
        if not self.mechanisms:
            wrong.problems.append(ArgumentError("mechanism", "needs at least one", "none", "Use neyman_pearson."))
        if self.classes is not None and (type(self.classes) is not int or self.classes < 2):
            wrong.problems.append(ArgumentError("classes", "must be at least 2", self.classes, "Leave it out."))
        if (self.mean is None) != (self.std is None):
            remedy = "Give both, one number per channel."
            wrong.problems.append(ModelError("mean, std", "must be given together", "only one", remedy))
        wrong.tell()

    def _check_tree(self) -> None:
        live, joint = isinstance(self.classifier, Live), self.procedure.name == EnsembleAfterSmoothing.name
        lanes = tuple(map(Lane, self.names)) or lanes_of(self.classifier)  # every node is known, its settings are read
        twice = [name for name, count in Counter(lane.name for lane in lanes).items() if count > 1]
        if twice:
            rule, remedy = "must have names of their own, which are the keys of their records", "Leave out one of them."
            raise ArgumentError("lanes", rule, f"{', '.join(map(repr, twice[:3]))} more than once", remedy)
        if self.split_alpha and joint:
            rule = "divides alpha over lanes, and after-smoothing makes one claim about all members"
            raise ArgumentError("split_alpha", rule, f"procedure {self.procedure.name}", "Leave it out.")
        if (self.lift is not None or self.names) and not live:
            rule = "are for a network of the program; a tree of models says its own"
            raise ArgumentError("lift, lanes", rule, str(self.classifier), "Leave them out.")
        if self.mean is not None and live_places(self.classifier):
            rule = "stand before sources, and a network of the program brings what it needs"
            raise ModelError("mean, std", rule, str(self.classifier), "Wrap it: normalize(net, mean=..., std=...).")

    # What follows from it

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The classifiers that are certified, each with records of its own; after smoothing there is one claim."""
        if self.procedure.name == EnsembleAfterSmoothing.name:
            return (Lane("main"),)
        return tuple(map(Lane, self.names)) or lanes_of(self.classifier)

    @property
    def test(self) -> Procedure:
        """The procedure of one lane: with split_alpha each has its share of alpha, so that one may be chosen later."""
        if not self.split_alpha:
            return self.procedure
        return replace(self.procedure, alpha=self.procedure.alpha / len(self.lanes))  # type: ignore[type-var]

    @property
    def sound(self) -> bool:
        """False where a published form is reproduced that proves nothing: of the procedure, or of the lift."""
        lift = self.lift is None or self.lift.sound
        return self.test.sound and lift and root_is_sound(self.classifier)

    def load(self, device: str = "auto") -> Loaded:
        """Models and inputs, loaded and seen to fit each other."""
        model = load_model(self.classifier, num_classes=self.classes, mean=self.mean, std=self.std)
        dataset = self.data.load(model.num_classes)
        module, lift = model.placed(dataset.shape)
        norm_bound(self.lift or lift, self.mechanisms[0], self.noise)  # refuses what has no proof
        if not len(dataset):
            return Loaded(self, model, module, self.lift or lift, dataset, self.classes or model.num_classes or 2)
        lift, names, first = self.lift or lift, tuple(lane.name for lane in self.lanes), dataset.first_readable
        found = count_classes(module, lift(first), pick_device(device), names)
        facts(module, first[None])  # a core network must fit too, before a run folder is begun
        known = self.classes or model.num_classes
        if known is not None and known != found:
            raise ArgumentError("classes", f"the model returns {found} scores", known, f"Use {found}.")
        dataset.check_labels(found)
        return Loaded(self, model, module, lift, dataset, found)

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
            names = tuple(lane.name for lane in self.lanes) if self.split_alpha else self.names
            parts = (module, self.data.stream(), self.lift or Identity(), self.classes, names)
        else:
            loaded = self.load(execution.device)
            names = tuple(lane.name for lane in self.lanes)
            parts = (loaded.module, iter(loaded.dataset), loaded.lift, loaded.classes, names)
        yield from self.driven(*parts, execution)

    def driven(
        self,
        module: nn.Module,
        inputs: Iterator[Any],
        lift: Lift,
        classes: int | None,
        lanes: tuple[str, ...],
        execution: Execution,
        config_hash: str = "",
    ) -> Iterator[Record]:
        """The engine's records for these inputs: noise, procedure, mechanisms, precision and seed are the value's."""
        parts = (self.noise, self.test, self.mechanisms, lift, classes, lanes, self.precision, self.seed)
        return engine_named(execution.engine).records(Work(module, inputs, *parts, config_hash, execution))

    def start(self, out: str | Path, execution: Execution | None = None) -> Started:
        """The run in this folder, begun or found; its records come when it is asked for them."""
        from ringfence.engines.local import start

        return start(self, out, execution)

    def run(self, out: str | Path, execution: Execution | None = None) -> RunFolder:
        """Certify into a run folder; the same again continues it."""
        started = self.start(out, execution)
        for _ in started.records():
            pass
        return started.run

    # To config and back

    @classmethod
    def of(
        cls, config: RunConfig, modules: Sequence[nn.Module] = (), data: Any = None, lift: Lift | None = None
    ) -> Self:
        """What a config says. Networks, data and lifts of a program must be given again, and be what they were."""
        tree, stored = tree_of(config.classifier.tree), config.data
        places = len(live_places(tree))
        if len(modules) != places:
            rule, remedy = f"needs the {places} networks of its tree again, in their order", "Give modules=[...]."
            raise ModelError("modules", rule, f"{len(modules)} for {config.classifier.tree}", remedy)
        test = named_procedure(config.procedure.name, config.procedure.settings)
        alpha = undivided(test.alpha, len(config.classifier.lanes)) if config.split_alpha else test.alpha
        chosen = {key: getattr(stored, key) for key in ("split", "skip", "limit", "stop", "size")}
        root = with_live(tree, iter(modules))
        found = cls(
            root,
            Data(stored.source if data is None else data, **chosen),
            noise=noise_of(config.noise.model_dump()),
            procedure=replace(test, alpha=alpha),  # type: ignore[type-var]
            mechanism=mechanisms_of(config.mechanisms),
            precision=config.precision,
            split_alpha=config.split_alpha,
            seed=config.seed,
            mean=config.classifier.mean,
            std=config.classifier.std,
            classes=config.classifier.classes,
            lift=lift,
            lanes=config.classifier.names if isinstance(root, Live) else (),
        )
        if modules or data is not None or lift is not None:
            changed = changed_settings(found.config(), config)
            if changed:
                rule, remedy = "must be what the config was made of", "Give the same networks, data and lift."
                raise ModelError("modules, data, lift", rule, "; ".join(changed), remedy)
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


@final
@dataclass(frozen=True)
class Loaded:
    """A certification with its models and inputs: module is the classifier behind the noise, lift the map before it."""

    certification: Certification
    model: LoadedModel
    module: nn.Module
    lift: Lift
    dataset: Dataset
    classes: int

    @property
    def config(self) -> RunConfig:
        """The typed config; made here alone, from the value and what was loaded for it."""
        value, data = self.certification, self.certification.data
        drawing = NOISES.get(value.noise.law.family)
        if drawing is not type(value.noise):
            rule = f"a run folder knows a noise by its family, and {value.noise.law.family} is drawn by {drawing}"
            remedy = "Register it under a family of its own, or write no folder."
            raise ArgumentError("noise", rule, repr(value.noise), remedy)
        exact = {} if value.noise.law.lattice is None else {"coordinates": math.prod(self.dataset.shape)}
        content = {
            "classifier": {
                "tree": self.model.spec,
                "digest": self.model.digest,
                "classes": self.classes,
                "mean": value.mean,
                "std": value.std,
                "lanes": [lane.settings() for lane in value.lanes],
            },
            "data": {"source": data.name, "digest": self.dataset.digest, **data.choice, "count": len(self.dataset)},
            "noise": value.noise.settings() | exact,
            "norm": value.mechanisms[0].norm,
            "lift": self.lift.settings(),
            "procedure": {"name": value.test.name, **value.test.settings()},
            "mechanisms": [one.name for one in value.mechanisms],
            "split_alpha": value.split_alpha,
            "precision": value.precision,
            "seed": value.seed,
        }
        return RunConfig.model_validate(plain(content))


def certify(
    classifier: str | Tree | nn.Module,
    data: Any,
    *,
    noise: Noise,
    procedure: Procedure | None = None,
    mechanism: Mechanisms = neyman_pearson,
    also: tuple[Mechanism, ...] = (),
    lift: Lift | None = None,
    num_classes: int | None = None,
    lanes: Sequence[str] = (),
    precision: str = "fp32",
    split_alpha: bool = False,
    seed: int = 0,
    execution: Execution | None = None,
    out: str | Path | None = None,
) -> Iterator[Record]:
    """Certify every input; records come as inputs are decided, all lanes of an input together.

    classifier: a network (B, *shape) -> scores (B, K) or (B, lanes, K) with names of the lanes, or a tree of models.
    data: a source, Dataset, DataLoader, tensor (N, *shape) in [0,1], or inputs, tensors or (tensor, label) pairs.
    mechanism decides; also adds further radii from the same bounds at no cost. out: a run folder that is written too;
    what it holds already comes first. The noise of draw i of an input depends on (seed, its id, stage, i) alone.
    """
    deciding = (mechanism,) if isinstance(mechanism, Mechanism) else tuple(mechanism)
    value = Certification(
        classifier,
        data,
        noise=noise,
        procedure=procedure,
        mechanism=(*deciding, *also),
        precision=precision,
        split_alpha=split_alpha,
        seed=seed,
        classes=num_classes,
        lift=lift,
        lanes=lanes,
    )
    if out is None:
        yield from value.stream(execution)
        return
    started = value.start(out, execution)
    yield from started.run.so_far()
    yield from started.records()

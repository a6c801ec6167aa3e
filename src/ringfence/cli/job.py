"""A certification as the command line describes it: checked as a whole first, loaded afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ringfence.classifiers import facts
from ringfence.cli.console import written_numbers
from ringfence.data import Dataset, load_dataset
from ringfence.driver import Execution
from ringfence.errors import ArgumentError
from ringfence.mechanisms import Mechanism, check_together, mechanisms_named
from ringfence.models import LoadedModel, as_tree, lanes_of, load_model, procedure_for
from ringfence.models.grammar import Tree
from ringfence.noise import Gaussian
from ringfence.procedures import EnsembleAfterSmoothing, Given, Procedure, procedure
from ringfence.sampling import ForwardPlan, check_memory, check_seed, count_classes, pick_device
from ringfence.store import RunConfig


class Composed(Protocol):
    """A classifier made of several models, as the command line describes it: an ensemble, or ACES."""

    @property
    def tree(self) -> Tree:
        """The same as a tree of models."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """Names of the lanes."""

    def settings(self) -> dict[str, Any]:
        """Every choice, for the run's config."""

    def load(self, mean: Sequence[float] | None, std: Sequence[float] | None, classes: int | None) -> LoadedModel:
        """The models, loaded and composed."""


@dataclass(frozen=True)
class Choices:
    """Everything a user chose; constructing it validates all of it together, before anything is loaded."""

    model: str
    data: str
    sigma: float
    procedure: str
    settings: Mapping[str, Any]
    mechanism: str = "neyman-pearson"
    weights: Path | None = None
    skip: int = 1
    limit: int | None = None
    stop_index: int | None = None
    split: str = "test"
    size: int | None = None
    mean: str | None = None
    std: str | None = None
    classes: int | None = None
    device: str = "auto"
    batch: str = "auto"
    precision: str = "fp32"
    compile: bool = False
    autotune: bool | None = None
    seed: int = 0
    ensemble: Composed | None = None
    split_alpha: bool = False

    def __post_init__(self) -> None:
        check_together(self.mechanisms, self.noise.law)
        self.test.start(1, Given(self.classes or 2, self.noise.law, self.mechanisms[0]))
        self.execution  # noqa: B018
        check_seed(self.seed)
        for name, value in (("skip", self.skip), ("limit", self.limit)):
            if value is not None and value < 1:
                raise ArgumentError(f"--{name}", "must be at least 1", value, "Leave it out to take everything.")

    @property
    def noise(self) -> Gaussian:
        """Gaussian noise of the chosen sigma."""
        return Gaussian(self.sigma)

    @property
    def test(self) -> Procedure:
        """The procedure with its settings; split_alpha divides alpha over the lanes, so that one may be chosen."""
        name, implied = procedure_for(self.tree, self.procedure)
        settings = {**self.settings, **implied}
        if self.split_alpha and name == EnsembleAfterSmoothing.name:
            rule = "divides alpha over lanes, and after-smoothing makes one claim about all members"
            raise ArgumentError("--split-alpha", rule, f"--procedure {name}", "Leave it out.")
        if self.split_alpha:
            settings["alpha"] = settings["alpha"] / len(self.lanes)
        return procedure(name, settings)

    @property
    def tree(self) -> Tree:
        """The classifier as a tree of models."""
        return self.ensemble.tree if self.ensemble else as_tree(self.model)

    @property
    def lanes(self) -> tuple[str, ...]:
        """Names of the lanes."""
        if self.ensemble:
            return self.ensemble.lanes
        joint = self.procedure == EnsembleAfterSmoothing.name  # one claim about all members
        return ("main",) if joint else lanes_of(self.tree)

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """The deciding mechanism first; ``all`` is Neyman-Pearson with every other one beside it."""
        return mechanisms_named(self.mechanism)

    @property
    def execution(self) -> Execution:
        """Device, batch and precision, checked."""
        pick_device(self.device)
        ForwardPlan(1, self.precision)  # type: ignore[arg-type]
        if self.batch == "auto":
            batch = None
        elif self.batch.isdecimal() and int(self.batch) > 0:
            batch = int(self.batch)
        else:
            raise ArgumentError("--batch", "must be auto or a number of rows", repr(self.batch), "Use auto.")
        return Execution(self.device, batch, self.precision, self.compile, self.autotune)  # type: ignore[arg-type]

    @property
    def normalization(self) -> tuple[list[float] | None, list[float] | None]:
        """Channel means and deviations as numbers."""
        return written_numbers(self.mean, "--mean"), written_numbers(self.std, "--std")

    @property
    def most(self) -> int | None:
        """How many inputs at most: --limit, and those below Cohen's --max."""
        if self.stop_index is None:
            return self.limit
        reached = -(-self.stop_index // self.skip)
        return reached if self.limit is None else min(self.limit, reached)

    def load(self) -> tuple[LoadedModel, Dataset, int]:
        """The model, the data and the number of classes."""
        mean, std = self.normalization
        if self.ensemble:
            model = self.ensemble.load(mean, std, self.classes)
        else:
            model = load_model(self.model, weights=self.weights, num_classes=self.classes, mean=mean, std=std)
        dataset = load_dataset(
            self.data,
            skip=self.skip,
            limit=self.most,
            split=self.split,  # type: ignore[arg-type]
            size=self.size,
            num_classes=model.num_classes,
        )
        self.check_batch(dataset.shape)
        return model, dataset, self._count_classes(model, dataset)

    def check_batch(self, shape: tuple[int, ...]) -> None:
        """Refuse a --batch of such inputs that no memory holds."""
        if self.execution.batch is not None:
            check_memory(self.execution.batch, shape, pick_device(self.device))

    def config(self, model: LoadedModel, dataset: Dataset, num_classes: int) -> RunConfig:
        """What determines the records."""
        mean, std = self.normalization
        return RunConfig(
            model=model.spec,
            weights_hash=model.digest,
            data=self.data,
            data_hash=dataset.digest,
            num_classes=num_classes,
            skip=self.skip,
            limit=self.limit,
            sigma=self.sigma,
            noise=self.noise.name,
            lift=model.placed(dataset.shape)[1].settings(),
            procedure=self.test.name,
            procedure_settings=self.test.settings(),
            mechanism=self.mechanisms[0].name,
            mechanisms=[one.name for one in self.mechanisms],
            lanes=list(self.lanes),
            precision=self.precision,
            compile=self.compile,
            seed=self.seed,
            mean=mean,
            std=std,
            extra={
                "split": self.split,
                "size": self.size,
                "stop_index": self.stop_index,
                "count": len(dataset),
                "ensemble": self.ensemble.settings() if self.ensemble else None,
                "alpha_split": self.split_alpha,
            },
        )

    def _count_classes(self, model: LoadedModel, dataset: Dataset) -> int:
        known = self.classes or model.num_classes
        module, lift = model.placed(dataset.shape)
        found = count_classes(module, lift(dataset[0].x), pick_device(self.device), self.lanes)
        facts(module, dataset[0].x[None])  # a core network must fit too, before a run folder is begun
        if known is not None and known != found:
            raise ArgumentError("--classes", f"the model returns {found} scores", known, f"Use --classes {found}.")
        dataset.check_labels(found)
        return found

"""The study behind ``ringfence study drt``: train the variants, certify them, one line per vote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from torch import nn

from ringfence.analysis.metrics import metrics_by_lane
from ringfence.analysis.ranking import holdout_scores
from ringfence.analysis.sween import grid_weights
from ringfence.classifiers import Lanes, Weighted, lane_names
from ringfence.data import load_dataset
from ringfence.driver import Execution
from ringfence.engines import certify_into
from ringfence.errors import ArgumentError
from ringfence.lift import Identity
from ringfence.mechanisms import neyman_pearson
from ringfence.models import load_model, model_digest
from ringfence.noise import Gaussian
from ringfence.procedures import Fixed
from ringfence.sampling import count_classes, pick_device
from ringfence.store import RunConfig, RunFolder
from ringfence.training.options import described_job
from ringfence.training.run import TrainingRun
from ringfence.training.side_by_side import run_training

VOTES = ("softmax", "max-margin")


@final
@dataclass(frozen=True)
class DrtStudy:
    """Settings of the study; every variant fine-tunes the same members for as many epochs."""

    data: str
    out: Path
    init: Path | None = None
    base: str = "gaussian"
    arch: str = "lenet"
    members: int = 3
    sigma: float = 0.5
    epochs: int = 90
    batch: int = 256
    lr: float = 0.01
    tune_lr: float = 0.001
    rho1: float = 0.5
    rho2: float = 2.0
    sweep: tuple[float, ...] = (0.1, 1.0, 10.0)
    limit: int | None = None
    skip: int = 10
    inputs: int | None = None
    n: int = 100_000
    holdout: int = 1000
    radii: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    device: str = "auto"
    graph: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.members < 2:
            raise ArgumentError("--members", "must be at least 2 for an ensemble", self.members, "Use 3.")
        if self.holdout < 1:
            raise ArgumentError("--holdout", "must be at least 1", self.holdout, "Use 1000.")

    @property
    def variants(self) -> dict[str, dict[str, Any]]:
        """Name -> settings of DRT; ``base`` is the members before it."""
        both = {"rho1": self.rho1, "rho2": self.rho2}
        return {
            "drt": both,
            "gradient-diversity": {**both, "rho2": 0.0},
            "margin": {**both, "rho1": 0.0},
            "summed": {**both, "form": "summed"},
            **{f"rho1={value:g}": {**both, "rho1": value} for value in self.sweep},
        }

    def run(self, name: str, settings: dict[str, Any] | None, init: Path | None) -> TrainingRun:
        """The training of a variant; settings None: the base members."""
        given = {
            "data": self.data,
            "arch": self.arch,
            "objective": self.base if settings is None else "drt",
            "base": None if settings is None else self.base,
            "members": self.members,
            "lr": self.lr if settings is None else self.tune_lr,
            "sigma": self.sigma,
            "epochs": self.epochs,
            "batch": self.batch,
            "seed": self.seed,
            "graph": self.graph,
            "init": None if init is None else str(init),
            "limit": self.limit,
        }
        return TrainingRun(described_job(given, settings or {}), self.out / "zoo" / name, self.device)


def run_study(study: DrtStudy, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Rows {variant, vote, acr, certified_accuracy}; what is already in the folder is not made again."""
    first = study.init
    if first is None:
        tell("base: training")
        first = run_training(study.run("base", None, None))[0].parent
    rows = _certify(study, "base", first, tell)
    for name, settings in study.variants.items():
        tell(f"{name}: training")
        run = study.run(name, settings, first)
        run_training(run)
        rows += _certify(study, name, run.out, tell)
    return rows


def _certify(study: DrtStudy, name: str, folder: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Single members and both votes from one pass; for ``drt`` also the best weights of a grid (appendix G.3)."""
    files = [folder / f"final-{i}.safetensors" for i in range(study.members)]
    loaded = [load_model(study.arch, weights=file) for file in files]
    modules = [one.at_input for one in loaded]
    lanes = lane_names(study.members, VOTES, False, True, ())
    rows = _run(study, name, Lanes(modules, VOTES, singles=True), loaded[0].num_classes, lanes, {}, tell)
    if name == "drt":
        held_out = load_dataset(study.data, split="train", limit=study.holdout)
        device = pick_device(study.device)
        scores = holdout_scores(modules, held_out, Gaussian(study.sigma), 10, study.seed, device)
        weights = grid_weights(scores, "softmax").weights
        classifier = Weighted(modules, weights, "softmax")
        extra = {"weights": list(weights)}
        rows += _run(study, "drt-grid", classifier, loaded[0].num_classes, ("grid weights",), extra, tell)
    return rows


def _run(
    study: DrtStudy,
    name: str,
    classifier: nn.Module,
    num_classes: int | None,
    lanes: tuple[str, ...],
    extra: dict[str, Any],
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    dataset = load_dataset(study.data, skip=study.skip, limit=study.inputs)
    procedure = Fixed(n=study.n)
    config = RunConfig(
        model=name,
        weights_hash=model_digest(classifier),
        data=study.data,
        data_hash=dataset.digest,
        num_classes=num_classes or count_classes(classifier, dataset[0].x, pick_device(study.device), lanes),
        skip=study.skip,
        limit=study.inputs,
        sigma=study.sigma,
        lift=Identity().settings(),
        procedure=procedure.name,
        procedure_settings=procedure.settings(),
        mechanism=neyman_pearson.name,
        mechanisms=[neyman_pearson.name],
        lanes=list(lanes),
        extra={"count": len(dataset), **extra},
    )
    run = RunFolder.create_or_resume(study.out / "runs" / name, config)
    tell(f"{name}: certifying {len(dataset)} inputs")
    certify_into(
        run,
        classifier,
        dataset,
        noise=Gaussian(study.sigma),
        procedure=procedure,
        mechanisms=[neyman_pearson],
        execution=Execution(device=study.device),
    )
    return [
        {
            "variant": name,
            "vote": found.lane or lanes[0],
            "acr": found.acr,
            "certified_accuracy": {f"{radius:g}": share for radius, share in found.certified_accuracy.items()},
            **extra,
        }
        for found in metrics_by_lane(run, study.radii)
    ]

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
from ringfence.certification import Certification
from ringfence.classifiers import Lanes, Weighted, vote_lanes
from ringfence.data import Data, load_dataset
from ringfence.driver import Execution
from ringfence.errors import ArgumentError
from ringfence.models import load_model
from ringfence.noise import Gaussian
from ringfence.procedures import Fixed
from ringfence.sampling import pick_device
from ringfence.training.job import TrainJob
from ringfence.training.running import run_job

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

    def job(self, name: str, settings: dict[str, Any] | None, init: Path | None) -> TrainJob:
        """The training of a variant; settings None: the base members."""
        return TrainJob(
            data=self.data,
            out=self.out / "zoo" / name,
            arch=self.arch,
            objective=self.base if settings is None else "drt",
            base=None if settings is None else self.base,
            members=self.members,
            settings=settings or {},
            schedule={"lr": self.lr if settings is None else self.tune_lr},
            options={
                "sigma": self.sigma,
                "epochs": self.epochs,
                "batch": self.batch,
                "seed": self.seed,
                "graph": self.graph,
            },
            init=init,
            limit=self.limit,
            device=self.device,
        )


def run_study(study: DrtStudy, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Rows {variant, vote, acr, certified_accuracy}; what is already in the folder is not made again."""
    first = study.init
    if first is None:
        job = study.job("base", None, None)
        tell("base: training")
        run_job(job)
        first = job.out
    rows = _certify(study, "base", first, tell)
    for name, settings in study.variants.items():
        job = study.job(name, settings, first)
        tell(f"{name}: training")
        run_job(job)
        rows += _certify(study, name, job.out, tell)
    return rows


def _certify(study: DrtStudy, name: str, folder: Path, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Single members and both votes from one pass; for ``drt`` also the best weights of a grid (appendix G.3)."""
    files = [folder / f"final-{i}.safetensors" for i in range(study.members)]
    loaded = [load_model(study.arch, weights=file) for file in files]
    modules = [one.at_input for one in loaded]
    lanes = tuple(one.name for one in vote_lanes(study.members, VOTES, False, True, ()))
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
    tell(f"{name}: certifying")
    run = Certification(
        classifier,
        Data(study.data, skip=study.skip, limit=study.inputs),
        noise=Gaussian(study.sigma),
        procedure=Fixed(n=study.n),
        classes=num_classes,
        lanes=lanes,
    ).run(study.out / "runs" / name, Execution(device=study.device))
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

"""An attack on a run: every certificate inside its own radius, every right answer at the radii asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.attacks import ATTACKS, check_attack
from ringfence.cli.ensemble import EnsembleChoice
from ringfence.data import Dataset, Input, load_dataset
from ringfence.driver import Execution, certify
from ringfence.errors import ArgumentError, DataError, ModelError, StoreError
from ringfence.models import LoadedModel, load_model
from ringfence.noise import Gaussian
from ringfence.procedures import Predict
from ringfence.record import Record
from ringfence.sampling import pick_device
from ringfence.store import RunFolder
from ringfence.store.atomic import write_json, writing_errors

INSIDE = 1 - 1e-4
"""Share of a certified radius that is attacked: rounding of float32 inputs must not carry a point outside."""

RECHECK_ALPHA = 1e-6
"""Level of the rank test that a broken certificate must pass: the evidence should not be chance itself."""


@final
@dataclass(frozen=True)
class AttackJob:
    """What the command line said; None: as the run's config says."""

    run: Path
    model: str | None = None
    weights: Path | None = None
    members: str | None = None
    vote: str = "soft"
    data: str | None = None
    split: str = "test"
    lane: str | None = None
    radii: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    attack: str = "pgd"
    steps: int = 20
    copies: int = 32
    box: bool = False
    n: int = 1000
    recheck: int = 100_000
    limit: int | None = None
    batch: int = 64
    device: str = "auto"
    seed: int = 1

    def __post_init__(self) -> None:
        if self.attack not in ATTACKS:
            raise ArgumentError("--attack", f"must be one of {', '.join(ATTACKS)}", repr(self.attack), "Use pgd.")
        for radius in self.radii:
            check_attack(radius, self.steps)
        for name, value in (("copies", self.copies), ("n", self.n), ("recheck", self.recheck), ("batch", self.batch)):
            if value < 1:
                raise ArgumentError(f"--{name}", "must be at least 1", value, "Leave it out.")


@final
@dataclass(frozen=True)
class Broken:
    """Evidence against a certificate: the attacked point (*shape) and what fresh draws say there."""

    input_id: int
    certified_class: int
    radius: float
    distance: float
    attacked_class: int
    votes: int
    draws: int
    point: Tensor

    def described(self) -> dict[str, Any]:
        """Everything but the point."""
        return {key: value for key, value in vars(self).items() if key != "point"}


@final
@dataclass(frozen=True)
class AttackResult:
    """Certified and empirical accuracy (0 to 1) per radius, and the certificates that broke."""

    run: str
    attack: str
    inputs: int
    attacked: int
    alpha: float
    radii: tuple[float, ...]
    certified: tuple[float, ...]
    empirical: tuple[float, ...]
    broken: list[Broken] = field(default_factory=list)


class _OneLane(nn.Module):
    """One lane of a classifier with several, as a classifier of its own."""

    def __init__(self, inner: nn.Module, lane: int) -> None:
        super().__init__()
        self.inner, self.lane = inner, lane

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) -> (B, K)."""
        scores: Tensor = self.inner(x)
        return scores[:, self.lane] if scores.dim() == 3 else scores


def run_attack(job: AttackJob, tell: Callable[[str], None] = lambda text: None) -> AttackResult:
    """Attack every right answer of the run at every radius, and every certificate inside its own."""
    run = RunFolder.open(job.run)
    if run.config.lift.get("name", "identity") != "identity":
        raise ArgumentError("RUN", "must add its noise to the input itself", run.config.lift["name"], "Attack another.")
    lane = _lane(job, run)
    model, dataset = _load_model(job, run), _load_data(job, run)
    device = pick_device(job.device)
    classifier = _OneLane(model.module, list(run.config.lanes).index(lane)).to(device).eval()
    records = {one.input_id: one for one in run.read() if one.lane == lane}
    chosen = [item for item in dataset if item.id in records][: job.limit]
    if not chosen:
        raise StoreError(str(job.run), "must hold records of this data", "none", "Check --data.")
    if any(item.label is None for item in chosen):
        raise DataError("--data", "needs labels to measure accuracy", "inputs without one", "Use labelled data.")
    right = [item for item in chosen if records[item.id].correct]
    standing = {item.id for item in right}
    certified, empirical = [], []
    for radius in job.radii:
        alive = [item for item in right if item.id in standing]
        tell(f"radius {radius:g}: attacking {len(alive)} of {len(chosen)} inputs")
        points = attacked_points(job, classifier, alive, [radius] * len(alive), run.config.sigma, device)
        for item, record in zip(alive, _predict(job, classifier, points, run.config.sigma, job.n, 1e-3), strict=True):
            if record.prediction not in (item.label, -1):
                standing.discard(item.id)
        empirical.append(len(standing) / len(chosen))
        certified.append(sum(records[item.id].radius >= radius for item in right) / len(chosen))
    claims = [item for item in chosen if not records[item.id].abstained and records[item.id].radius > 0]
    tell(f"attacking {len(claims)} certificates inside their own radius")
    broken = _broken(job, classifier, claims, records, run.config.sigma, device)
    alpha = next(iter(records.values())).alpha
    return AttackResult(
        str(job.run), job.attack, len(chosen), len(claims), alpha, job.radii, tuple(certified), tuple(empirical), broken
    )


def attacked_points(
    job: AttackJob,
    classifier: nn.Module,
    items: Sequence[Input],
    radii: Sequence[float],
    sigma: float,
    device: torch.device,
    against: Sequence[int] | None = None,
) -> list[Tensor]:
    """The strongest point found within each input's radius, away from its label (or the given classes)."""
    attack = ATTACKS[job.attack](eps=1.0, steps=job.steps, box=job.box)
    generator = torch.Generator(device).manual_seed(job.seed)
    classes = [int(item.label or 0) for item in items] if against is None else list(against)
    found: list[Tensor] = []
    for parameter in classifier.parameters():
        parameter.requires_grad_(False)
    for start in range(0, len(items), job.batch):
        part = slice(start, start + job.batch)
        x = torch.stack([item.x for item in items[part]]).to(device, torch.float32)
        y = torch.tensor(classes[part], device=device)
        noise = sigma * torch.randn((job.copies, *x.shape), generator=generator, device=device)
        share = torch.tensor(radii[part], device=device).view(-1, *[1] * (x.dim() - 1))
        found += list(attack(classifier, x, y, noise, share).cpu())
    return found


def _predict(
    job: AttackJob, classifier: nn.Module, points: list[Tensor], sigma: float, n: int, alpha: float
) -> list[Record]:
    """PREDICT at every point with draws that the attack has not seen."""
    if not points:
        return []
    inputs = [Input(number, point, None, str(number)) for number, point in enumerate(points)]
    records = certify(
        classifier,
        inputs,
        noise=Gaussian(sigma),
        procedure=Predict(alpha=alpha, n=n),
        seed=job.seed,
        execution=Execution(device=job.device),
    )
    return sorted(records, key=lambda record: record.input_id)


def _broken(
    job: AttackJob,
    classifier: nn.Module,
    claims: list[Input],
    records: dict[int, Record],
    sigma: float,
    device: torch.device,
) -> list[Broken]:
    """Certificates whose class changes inside their radius, seen twice: with n draws, then with fresh ones."""
    radii = [INSIDE * records[item.id].radius for item in claims]
    classes = [records[item.id].prediction for item in claims]
    points = attacked_points(job, classifier, claims, radii, sigma, device, classes)
    first = _predict(job, classifier, points, sigma, job.n, 1e-3)
    suspects = [i for i, record in enumerate(first) if record.prediction not in (classes[i], -1)]
    again = AttackJob(**{**vars(job), "seed": job.seed + 1})
    second = _predict(again, classifier, [points[i] for i in suspects], sigma, job.recheck, RECHECK_ALPHA)
    found: list[Broken] = []
    for i, record in zip(suspects, second, strict=True):
        item = claims[i]
        distance = float((points[i].double() - item.x.double()).norm())
        claim = records[item.id]
        if record.prediction in (claim.prediction, -1) or distance >= claim.radius:
            continue
        votes = int(record.stages[-1].cells["votes"][record.prediction])
        found.append(
            Broken(item.id, claim.prediction, claim.radius, distance, record.prediction, votes, record.draws, points[i])
        )
    return found


def write_evidence(found: AttackResult, out: Path) -> None:
    """attack.json, and the attacked points as broken.npz."""
    with writing_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        if found.broken:
            points = np.stack([one.point.numpy() for one in found.broken])
            np.savez(out / "broken.npz", x=points, index=np.array([one.input_id for one in found.broken]))
    content = {**asdict(found), "broken": [one.described() for one in found.broken]}
    write_json(out / "attack.json", json.loads(json.dumps(content, default=str)))


def _lane(job: AttackJob, run: RunFolder) -> str:
    lanes = list(run.config.lanes)
    if job.lane is None and len(lanes) == 1:
        return lanes[0]
    if job.lane not in lanes:
        raise ArgumentError("--lane", f"must name one of {', '.join(lanes)}", repr(job.lane), "Choose one.")
    return job.lane


def _load_model(job: AttackJob, run: RunFolder) -> LoadedModel:
    stored = run.config.extra.get("ensemble")
    mean, std = run.config.mean, run.config.std
    if job.members is not None or (stored and job.model is None):
        model = _ensemble(job, stored or {}).load(mean, std, run.config.num_classes)
    else:
        model = load_model(
            job.model or run.config.model, weights=job.weights, num_classes=run.config.num_classes, mean=mean, std=std
        )
    if run.config.weights_hash and model.digest != run.config.weights_hash:
        rule = f"must be the model the run certified ({run.config.weights_hash[:12]}...)"
        raise ModelError("--model", rule, f"{model.spec} ({model.digest[:12]}...)", "Give its --model and --weights.")
    return model


def _ensemble(job: AttackJob, stored: dict[str, Any]) -> EnsembleChoice:
    """The ensemble as the run stored it; members named on the command line replace its own."""
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    settings: dict[str, Any] = {one.name: known[one.name] for one in fields(EnsembleChoice) if one.name in known}
    settings.setdefault("votes", tuple(job.vote.split(",")))
    if job.members is not None:
        settings["members"] = tuple(part.strip() for part in job.members.split(",") if part.strip())
    return EnsembleChoice(**settings)


def _load_data(job: AttackJob, run: RunFolder) -> Dataset:
    limit = run.config.extra.get("count") or run.config.limit
    split: Any = run.config.extra.get("split") or job.split
    dataset = load_dataset(
        job.data or run.config.data,
        skip=run.config.skip,
        limit=limit,
        split=split,
        size=run.config.extra.get("size"),
    )
    if run.config.data_hash and dataset.digest != run.config.data_hash:
        rule = "must be the data the run certified"
        raise DataError("--data", rule, "other contents", "Give the run's own data.")
    return dataset

"""What an attack is asked to do, and the run, lane, model and inputs it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, final

from ringfence.attacks import ATTACKS, check_attack
from ringfence.cli.ensemble import EnsembleChoice
from ringfence.data import Dataset, load_dataset
from ringfence.digests import difference
from ringfence.errors import ArgumentError, DataError, ModelError
from ringfence.models import LoadedModel, load_model
from ringfence.models.grammar import split_models
from ringfence.models.trust import foreign_code
from ringfence.record import Record
from ringfence.store import RunFolder

VOTED = ("fixed", "two-sided", "multinomial", "staged", "sequential", "anytime", "predict")
"""Procedures about the class that most noisy copies vote for, which is what PREDICT answers at an attacked point."""


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
    trust: bool = False

    def __post_init__(self) -> None:
        if self.attack not in ATTACKS:
            raise ArgumentError("--attack", f"must be one of {', '.join(ATTACKS)}", repr(self.attack), "Use pgd.")
        for radius in self.radii:
            check_attack(radius, self.steps)
        for name, value in (("copies", self.copies), ("n", self.n), ("recheck", self.recheck), ("batch", self.batch)):
            if value < 1:
                raise ArgumentError(f"--{name}", "must be at least 1", value, "Leave it out.")


def check_run(run: RunFolder) -> None:
    """Refuse what the attack would not attack as it was certified: it votes with one network on noisy inputs."""
    lift, reducing = run.config.lift.get("name", "identity"), run.config.extra.get("smooth_reduce") or {}
    if lift != "identity":
        raise ArgumentError("RUN", "must add its noise to the input itself", lift, "Attack another.")
    if any(reducing.get(name) for name in ("crops", "clips", "chunk")):
        raise ArgumentError("RUN", "must certify whole inputs", "a run of smooth-reduce", "Attack another.")
    if run.config.procedure not in VOTED:
        rule = f"must certify the vote of one classifier ({', '.join(VOTED)})"
        raise ArgumentError("RUN", rule, run.config.procedure, "Attack another.")


def tried(run: RunFolder, records: Mapping[int, Record]) -> float:
    """The largest radius the run tried to prove: it says nothing about larger ones."""
    if any(one.target is None for one in records.values()):
        return float("inf")
    larger = run.config.procedure_settings.get("larger") or ()
    return max(*(float(one.target or 0) for one in records.values()), *map(float, larger), 0.0)


def chosen_lane(job: AttackJob, run: RunFolder) -> str:
    """The lane to attack: the only one, or the named one."""
    lanes = list(run.config.lanes)
    if job.lane is None and len(lanes) == 1:
        return lanes[0]
    if job.lane not in lanes:
        raise ArgumentError("--lane", f"must name one of {', '.join(lanes)}", repr(job.lane), "Choose one.")
    return job.lane


def load_attacked(job: AttackJob, run: RunFolder) -> LoadedModel:
    """The classifier the run certified; any other is refused by its digest, and foreign code without trust."""
    stored = run.config.extra.get("ensemble")
    composed = job.members is not None or (stored and job.model is None)
    spec = str(_ensemble(job, stored or {}).tree) if composed else job.model or run.config.model
    if job.model is None and job.members is None and not job.trust:
        _refuse_foreign_code(run, spec)
    model = load_model(
        spec,
        weights=None if composed else job.weights,
        num_classes=run.config.num_classes,
        mean=run.config.mean,
        std=run.config.std,
    )
    stored_hash = run.config.weights_hash
    changed = difference("the model", model.digest, stored_hash) if stored_hash else None
    if changed:
        rule = "must be the model the run certified"
        raise ModelError("--model", rule, f"{model.spec} ({changed})", "Give its --model and --weights.")
    return model


def _refuse_foreign_code(run: RunFolder, spec: str) -> None:
    """A folder from elsewhere is data: it may say which of our networks to load, and name nobody's program."""
    told = foreign_code(spec)
    if told:
        rule = "names a model that runs code, which no run folder may start by itself"
        received = f"{run.path / 'config.json'}, with which this command would run {'; '.join(dict.fromkeys(told))}"
        remedy = "Look at that code; then give the model by --model (or --members), or add --trust."
        raise ModelError("RUN", rule, received, remedy)


def _ensemble(job: AttackJob, stored: dict[str, Any]) -> EnsembleChoice:
    """The ensemble as the run stored it; members named on the command line replace its own."""
    known = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    settings: dict[str, Any] = {one.name: known[one.name] for one in fields(EnsembleChoice) if one.name in known}
    settings.setdefault("votes", tuple(job.vote.split(",")))
    if job.members is not None:
        settings["members"] = tuple(split_models(job.members))
    try:
        return EnsembleChoice(**settings)
    except (TypeError, ValueError) as error:  # a config.json that somebody wrote by hand
        raise ModelError("RUN", "must name an ensemble", error, "Give --members and --vote.") from error


def load_inputs(job: AttackJob, run: RunFolder) -> Dataset:
    """The inputs the run certified; any others are refused by their digest."""
    limit = run.config.extra.get("count") or run.config.limit
    split: Any = run.config.extra.get("split") or job.split
    dataset = load_dataset(
        job.data or run.config.data,
        skip=run.config.skip,
        limit=limit,
        split=split,
        size=run.config.extra.get("size"),
    )
    changed = difference("the data", dataset.digest, run.config.data_hash) if run.config.data_hash else None
    if changed:
        rule = "must be the data the run certified"
        raise DataError("--data", rule, f"{dataset.name} ({changed})", "Give the run's own data.")
    return dataset

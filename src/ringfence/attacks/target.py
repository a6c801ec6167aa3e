"""What an attack is asked to do, and the run, lane, model and inputs it is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from ringfence.attacks.through_noise import ATTACKS, check_attack
from ringfence.data import Dataset, load_dataset
from ringfence.digests import difference
from ringfence.errors import ArgumentError, DataError, ModelError
from ringfence.models import LoadedModel, load_model
from ringfence.models.compose import with_weights
from ringfence.models.trust import foreign_code
from ringfence.procedures import Procedure
from ringfence.store import RunFolder
from ringfence.store.claimed import given_in, procedure_of


@final
@dataclass(frozen=True)
class AttackJob:
    """What is attacked, and how; None: as the run's config says. trust: the model may run code that it names."""

    run: Path
    model: str | None = None
    weights: Path | None = None
    trust: bool = False
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
            raise ArgumentError("attack", f"must be one of {', '.join(ATTACKS)}", repr(self.attack), "Use pgd.")
        for radius in self.radii:
            check_attack(radius, self.steps)
        for name, value in (("copies", self.copies), ("n", self.n), ("recheck", self.recheck), ("batch", self.batch)):
            if value < 1:
                raise ArgumentError(name, "must be at least 1", value, "Leave it out.")


def attacked_procedure(run: RunFolder) -> Procedure:
    """The run's procedure; refused where the attack would not attack what was certified.

    It moves inputs in l2, and asks PREDICT, which votes with one network on noisy inputs.
    """
    lift = run.config.lift.name
    if lift != "identity":
        raise ArgumentError("run", "must add its noise to the input itself", lift, "Attack another.")
    if run.config.root in ("patches", "clips", "chunks"):
        raise ArgumentError("run", "must certify whole inputs", "a run of smooth-reduce", "Attack another.")
    test = procedure_of(run.config)
    if test is None or test.needs != ("votes",):
        raise ArgumentError(
            "run", "must certify the vote of one classifier", run.config.procedure.name, "Attack another."
        )
    norm = given_in(run.config).mechanism.norm
    if norm != "l2":
        raise ArgumentError("run", "must have l2 radii, in which attacks move inputs", norm, "Attack another.")
    return test


def chosen_lane(job: AttackJob, run: RunFolder) -> str:
    """The lane to attack; runs with several need a name."""
    lanes = run.config.classifier.names
    if job.lane is None and len(lanes) == 1:
        return lanes[0]
    if job.lane not in lanes:
        raise ArgumentError("lane", f"must name one of {', '.join(lanes)}", repr(job.lane), "Choose one.")
    return job.lane


def load_attacked(job: AttackJob, run: RunFolder) -> LoadedModel:
    """The classifier the run certified; any other is refused by its digest, and foreign code without trust."""
    spec = _tree(job, run)
    if not job.trust:
        _refuse_foreign_code(run, spec)
    model = load_model(
        spec,
        num_classes=run.config.classifier.classes,
        mean=run.config.classifier.mean,
        std=run.config.classifier.std,
    )
    stored_hash = run.config.classifier.digest
    changed = difference("the model", model.digest, stored_hash) if stored_hash else None
    if changed:
        rule = "must be the model the run certified"
        raise ModelError("model", rule, f"{model.spec} ({changed})", "Give its model and weights.")
    return model


def _refuse_foreign_code(run: RunFolder, spec: str) -> None:
    """A folder from elsewhere is data: it may say which of our networks to load, and name nobody's program."""
    told = foreign_code(spec)
    if told:
        rule = "names a model that runs code, which no run folder may start by itself"
        received = f"{run.path / 'config.json'}, with which this command would run {'; '.join(dict.fromkeys(told))}"
        remedy = "Look at that code; then give the model by --model (or --members), or add --trust."
        raise ModelError("run", rule, received, remedy)


def _tree(job: AttackJob, run: RunFolder) -> str:
    """The tree that was named, or the run's own; with other weights where those were named."""
    model = job.model or run.config.classifier.tree
    return model if job.weights is None else str(with_weights(model.partition("@")[0], job.weights))


def load_inputs(job: AttackJob, run: RunFolder) -> Dataset:
    """The inputs the run certified; any others are refused by their digest."""
    stored = run.config.data
    split: Any = stored.split or job.split
    dataset = load_dataset(
        job.data or stored.source, skip=stored.skip, limit=stored.count or stored.limit, split=split, size=stored.size
    )
    changed = difference("the data", dataset.digest, stored.digest) if stored.digest else None
    if changed:
        rule = "must be the data the run certified"
        raise DataError("data", rule, f"{dataset.name} ({changed})", "Give the run's own data.")
    return dataset

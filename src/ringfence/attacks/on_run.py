"""An attack on a run: every certificate inside its own radius, every right answer at the radii asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ringfence.attack_job import AttackJob
from ringfence.attacks.target import (
    attacked_procedure,
    certification_of,
    chosen_attack,
    load_attacked,
    load_inputs,
    moving_of,
)
from ringfence.attacks.through_noise import ORDERS
from ringfence.certification import Certification
from ringfence.certifying import certify
from ringfence.classifiers import Classifier, Kinds, Scored, kinds_of, score
from ringfence.classifiers.fused.gradient import COMPARED, fuse_gradients
from ringfence.data import Dataset, Input
from ringfence.driver import lifted, on_lattice
from ringfence.errors import Collected, DataError, StoreError
from ringfence.lift import Identity, Lift
from ringfence.models import LoadedModel
from ringfence.noise import Noise
from ringfence.noise.exact import inside
from ringfence.procedures import Predict
from ringfence.progress import followed
from ringfence.record import Record
from ringfence.same_network import Asked
from ringfence.sampling import pick_device
from ringfence.sampling.preparing import copied
from ringfence.settings import usual_radii
from ringfence.store import RunFolder
from ringfence.store.attack import AttackResult, Broken
from ringfence.store.claims import one_lane
from ringfence.types import ABSTAIN
from ringfence.work import Execution, Work

INSIDE = 1 - 1e-4
"""Share of a certified radius that is attacked: rounding of float32 inputs must not carry a point outside."""

RECHECK_ALPHA = 1e-6
"""Level of the rank test that a broken certificate must pass: the evidence should not be chance itself."""


@final
class _OneLane(Classifier):
    """One lane of a classifier with several, as a classifier of its own."""

    def __init__(self, inner: nn.Module, lane: int) -> None:
        super().__init__()
        self.inner, self.lane = inner, lane

    @property
    def kinds(self) -> Kinds:
        """That of the lane."""
        every = kinds_of(self.inner)
        return every if len(every) == 1 else every[self.lane : self.lane + 1]

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, K)."""
        scores, work = score(self.inner, x)
        if scores.dim() == 2:
            return Scored(scores, work)
        alone = work[:, self.lane] if isinstance(work, Tensor) and work.dim() == 2 else work
        return Scored(scores[:, self.lane], alone)


def run_attack(
    job: AttackJob, tell: Callable[[str], None] = lambda text: None
) -> tuple[AttackResult, dict[int, NDArray[np.floating[Any]]]]:
    """Attack every right answer of the run at every radius, and every certificate inside its own.

    Also returns the attacked points (*shape) of broken certificates, by input id.
    """
    run = RunFolder.open(job.run)
    test = attacked_procedure(run)
    lane = one_lane(run.config.classifier.names, job.lane)
    named: Any = chosen_attack(job, run).name
    radii = job.radii or usual_radii(run.config.noise.sigma)[1:]
    job = replace(job, attack=named)
    tried = max(test.targets, default=math.inf) if test.claims_radius else 0.0  # nothing is said about larger radii
    value, wrong = certification_of(job, run), Collected()
    with wrong:
        model = load_attacked(value, run)
    with wrong:
        dataset = load_inputs(value, run)
    wrong.tell()
    device, work = pick_device(job.device), _work_of(run, value, model, dataset, job.device)
    module, lift, noise = work.classifier, work.lift, work.noise
    classifier = _OneLane(module, run.config.classifier.names.index(lane)).to(device).eval()
    records = {one.input_id: one for one in run.read() if one.lane == lane}
    chosen = _recorded(job, dataset, records, noise)
    seen = _as_seen(run, classifier, lifted(chosen[:COMPARED], lift), noise, device, tell)
    smoothed = _Smoothed(job, classifier, seen, lift, noise, device)
    right = [item for item in chosen if records[item.id].correct]
    standing = {item.id for item in right}
    certified: list[float | None] = []
    empirical: list[float] = []
    for radius in followed(radii, "attacking at the radii"):
        alive = [item for item in right if item.id in standing]
        tell(f"radius {radius:g}: attacking {len(alive)} of {len(chosen)} inputs")
        moved = smoothed.moved(alive, [radius] * len(alive))
        for item, record in zip(alive, smoothed.predict(moved), strict=True):
            if record.prediction not in (item.label, ABSTAIN):
                standing.discard(item.id)
        empirical.append(len(standing) / len(chosen))
        proved = sum(records[item.id].radius >= radius for item in right) / len(chosen)
        certified.append(proved if radius <= tried else None)
    claims = [item for item in chosen if not records[item.id].abstained and records[item.id].radius > 0]
    tell(f"attacking {len(claims)} certificates inside their own radius")
    broken = _broken(smoothed, claims, records)
    found = AttackResult(
        run=run.path.resolve().name,
        config_hash=run.config.digest,
        lane=lane,
        **{name: getattr(job, name) for name in ("attack", "steps", "copies", "box", "n", "recheck", "seed")},
        norm=moving_of(job).norm,
        sigma=run.config.noise.sigma,
        alpha=next(iter(records.values())).alpha,
        inputs=len(chosen),
        attacked=len(claims),
        radii=radii,
        certified=tuple(certified),
        empirical=tuple(empirical),
        broken=tuple(one for one, _ in broken),
    )
    return found, {one.input_id: point.numpy() for one, point in broken}


def _recorded(job: AttackJob, dataset: Dataset, records: Mapping[int, Record], noise: Noise) -> list[Input]:
    """The inputs that the run has records of, labelled, as they were certified."""
    known = (item for item in dataset if item.id in records)
    lattice = noise.law.lattice  # what was certified lies on it, where the noise is exact
    chosen = list(islice(known if lattice is None else on_lattice(known, lattice), job.limit))
    if not chosen:
        raise StoreError(job.run, "must hold records of this data", "none", "Check the data.")
    if any(item.label is None for item in chosen):
        raise DataError("data", "needs labels to measure accuracy", "inputs without one", "Use labelled data.")
    return chosen


def _work_of(run: RunFolder, value: Certification, model: LoadedModel, dataset: Dataset, device: str) -> Work:
    """The run's module behind noise and lift; refused if it says something else than the run's did."""
    module, lift = model.placed(dataset.shape)
    work = value.work(module, (), lift, run.config.classifier.classes, (), Execution(device))
    # A copy: what a network keeps of a forward without gradients cannot be differentiated.
    Asked(replace(work, classifier=copied(module)), tuple(dataset.shape), dataset).check(run)
    return work


def _as_seen(
    run: RunFolder,
    classifier: nn.Module,
    some: Sequence[Tensor],
    noise: Noise,
    device: torch.device,
    tell: Callable[[str], None],
) -> nn.Module:
    """The classifier as attacks differentiate it: by kernels where there are any and the run was in bf16, as they are.

    What they find is judged by the classifier itself.
    """
    if run.config.precision != "bf16":
        return classifier
    x = torch.stack(list(some)).to(device, torch.float32)
    drawn = torch.empty_like(x)
    noise.fill(drawn, key=0)
    seen, problem = fuse_gradients(classifier, x + drawn)
    tell("gradients by the fused kernels" if problem is None else f"gradients by autograd ({problem})")
    return seen


def attacked_points(
    job: AttackJob,
    classifier: nn.Module,
    items: Sequence[Input],
    radii: Sequence[float],
    noise: Noise,
    device: torch.device,
    against: Sequence[int] | None = None,
    lift: Lift | None = None,
) -> list[Tensor]:
    """The strongest point found within each input's radius, away from its label (or the given classes).

    Noise comes behind the lift, which an input keeps wherever it is moved; gradients go through it. Under exact noise
    nothing is claimed but of lattice points, so that those near the points found are tried.
    """
    attack = moving_of(job)(eps=1.0, steps=job.steps, box=job.box)
    classes = [int(item.label or 0) for item in items] if against is None else list(against)
    found: list[Tensor] = []
    for parameter in classifier.parameters():
        parameter.requires_grad_(False)
    for start in followed(range(0, len(items), job.batch), "attacking the certificates"):
        part = slice(start, start + job.batch)
        x = torch.stack([item.x for item in items[part]]).to(device, torch.float32)
        y = torch.tensor(classes[part], device=device)
        at = partial(_batch_lifted, lift or Identity(), [item.id for item in items[part]])
        shape = at(x).shape
        fixed = torch.empty((job.copies * len(x), *shape[1:]), dtype=torch.float32, device=device)
        noise.fill(fixed, key=(job.seed << 32) + start)
        share = torch.tensor(radii[part], device=device).view(-1, *[1] * (x.dim() - 1))
        found += list(attack(classifier, x, y, fixed.view(job.copies, *shape), share, at).cpu())
    steps = noise.law.lattice
    if steps is None:
        return found
    order = ORDERS[attack.norm]
    return [inside(*one, steps, order) for one in zip(found, [item.x for item in items], radii, strict=True)]


def _batch_lifted(lift: Lift, ids: Sequence[int], x: Tensor) -> Tensor:
    """Inputs (B, *shape), each lifted as its id says and where certifications do it, off the device: (B, *lifted)."""
    if isinstance(lift, Identity):
        return x
    return torch.stack([lift.at(one, number) for one, number in zip(x.cpu(), ids, strict=True)]).to(x.device)


@final
@dataclass(frozen=True)
class _Smoothed:
    """What was certified and is attacked: a classifier (and as gradients see it) behind a lift and noise."""

    job: AttackJob
    classifier: nn.Module
    seen: nn.Module
    lift: Lift
    noise: Noise
    device: torch.device

    def moved(
        self, items: Sequence[Input], radii: Sequence[float], against: Sequence[int] | None = None
    ) -> list[Input]:
        """Every input at the strongest point found; as their ids stay, so do their lifts."""
        points = attacked_points(self.job, self.seen, items, radii, self.noise, self.device, against, self.lift)
        return [replace(item, x=point) for item, point in zip(items, points, strict=True)]

    def predict(
        self, moved: Sequence[Input], n: int | None = None, alpha: float = 1e-3, again: int = 0
    ) -> list[Record]:
        """PREDICT at every moved input with draws that the attack has not seen; again: others than before."""
        if not moved:
            return []
        records = certify(
            self.classifier,
            [replace(item, label=None, range_told=True, eight_bit=False) for item in moved],
            noise=self.noise,
            procedure=Predict(alpha=alpha, n=n or self.job.n),
            lift=self.lift,
            seed=self.job.seed + again,
            execution=Execution(device=self.job.device, check=False),  # attacked points are no data set
        )
        places = {item.id: place for place, item in enumerate(moved)}
        return sorted(records, key=lambda record: places[record.input_id])


def _broken(smoothed: _Smoothed, claims: Sequence[Input], records: Mapping[int, Record]) -> list[tuple[Broken, Tensor]]:
    """Certificates whose class changes inside their radius, seen twice (n draws, then fresh ones), and where."""
    job, classes = smoothed.job, [records[item.id].prediction for item in claims]
    moved = smoothed.moved(claims, [INSIDE * records[item.id].radius for item in claims], classes)
    first = smoothed.predict(moved)
    suspects = [i for i, record in enumerate(first) if record.prediction not in (classes[i], ABSTAIN)]
    second = smoothed.predict([moved[i] for i in suspects], job.recheck, RECHECK_ALPHA, again=1)
    found: list[tuple[Broken, Tensor]] = []
    for i, record in zip(suspects, second, strict=True):
        item, point = claims[i], moved[i].x
        distance = float((point.double() - item.x.double()).norm(ORDERS[moving_of(job).norm]))
        claim = records[item.id]
        if record.prediction in (claim.prediction, ABSTAIN) or distance >= claim.radius:
            continue
        votes = int(record.stages[-1].cells["votes"][record.prediction])
        evidence = Broken(
            input_id=item.id,
            certified_class=claim.prediction,
            radius=claim.radius,
            distance=distance,
            attacked_class=record.prediction,
            votes=votes,
            draws=record.draws,
        )
        found.append((evidence, point))
    return found

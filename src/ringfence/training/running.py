"""Running what a TrainJob describes: its data, its trainings alone or together, the weights exported at the end."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ringfence.data import load_dataset
from ringfence.errors import ArgumentError
from ringfence.models import LoadedModel, load_model
from ringfence.sampling import pick_device
from ringfence.training.checkpoints import Checkpoints, export, freeze_settings, restore_modules
from ringfence.training.course import Status
from ringfence.training.data_on_device import DeviceData, load_device_data
from ringfence.training.job import TrainJob
from ringfence.training.loop import train, train_together
from ringfence.training.objectives import Catrs, Objective, Select
from ringfence.training.plan import TrainingPlan
from ringfence.training.selection import ClassVotes, RightAnswers


def run_job(job: TrainJob, on_status: Callable[[int, Status], None] = lambda member, status: None) -> list[Path]:
    """Train every member, one after the other unless joint; the exported files. Run again, it goes on."""
    freeze_settings(job.out, job.described())
    for member in job.trainings:
        run_member(job, member, on_status)
    return [job.final(i) for i in range(job.members)]


def run_member(job: TrainJob, member: int, on_status: Callable[[int, Status], None]) -> None:
    """One training of a job: all members if joint, else the given one; nothing if it is finished."""
    if _finished(job, member):
        return
    whole, classifier = _labelled(job)
    data, held_out = whole.split(job.holdout)
    plan = job.plan(member, classifier)
    trained = train(
        plan,
        _fresh(job, member, whole),
        data,
        _folder(job, member),
        held_out=held_out,
        device=job.device,
        devices=job.devices,
        tensorboard=job.tensorboard,
        on_status=lambda status: on_status(member, status),
    )
    _export(job, plan, member, trained)


def run_together(trainings: Sequence[tuple[TrainJob, int]], on_status: Callable[[TrainJob, int, Status], None]) -> None:
    """Trainings (job, member) on the same data at the same time in this process; finished ones are left alone."""
    for job in {job.out: job for job, _ in trainings}.values():
        freeze_settings(job.out, job.described())
    chosen = [(job, member) for job, member in trainings if not _finished(job, member)]
    if not chosen:
        return
    first = chosen[0][0]
    if len({_shared(job) for job, _ in chosen}) > 1:
        names = ", ".join(str(job.out) for job, _ in chosen)
        raise ArgumentError("trainings", "must share their data and device", names, "Train them apart.")
    whole, classifier = _labelled(first)
    data, held_out = whole.split(first.holdout)
    plans = [job.plan(member, classifier) for job, member in chosen]
    trained = train_together(
        plans,
        [_fresh(job, member, whole) for job, member in chosen],
        data,
        [_folder(job, member) for job, member in chosen],
        held_out=held_out,
        device=first.device,
        tensorboard=first.tensorboard,
        on_status=lambda place, status: on_status(*chosen[place], status),
    )
    for (job, member), plan, modules in zip(chosen, plans, trained, strict=True):
        _export(job, plan, member, modules)


def _shared(job: TrainJob) -> tuple[Any, ...]:
    """What determines data, labels and device."""
    labels = (job.plan(0).sigma, *sorted(job.settings.items())) if job.objective in ("select", "catrs") else ()
    return (job.data, job.limit, job.holdout, job.classes, job.classifier, job.device, *labels)


def _numbers(job: TrainJob, member: int) -> list[int]:
    """Which members a training ends with."""
    return list(range(job.members)) if job.joint else [member]


def _finished(job: TrainJob, member: int) -> bool:
    return all(job.final(i).exists() for i in _numbers(job, member))


def _fresh(job: TrainJob, member: int, data: DeviceData) -> list[nn.Module]:
    return [job.build(i, data.num_classes, data.x.shape[1]) for i in _numbers(job, member)]


def _labelled(job: TrainJob) -> tuple[DeviceData, nn.Module | None]:
    """The job's data, with the labels that its objective wants, and the fixed classifier where it needs one."""
    whole, device = load_job_data(job), pick_device(job.device)
    classifier = load_classifier(job).at_input.to(device) if job.classifier else None
    objective = job.plan(0, classifier).objective
    if isinstance(objective, Select):
        answers = right_answers(job, whole)
        answers.count(device)
        whole = answers.labels(objective.eta)
    if isinstance(objective, Catrs):
        votes = class_votes(job, whole)
        votes.count(device)
        whole = votes.labelled()
    return whole, classifier


def _folder(job: TrainJob, member: int) -> Path:
    return job.out / ("joint" if job.joint else f"member-{member}")


def _export(job: TrainJob, plan: TrainingPlan, member: int, trained: list[nn.Module]) -> None:
    if job.keep == "best" and (best := Checkpoints(_folder(job, member)).load_best()) is not None:
        with torch.no_grad():
            restore_modules(trained, best)
    about = {"arch": job.arch, "sigma": f"{plan.sigma:g}", "objective": _phrase(plan.objective)}
    for number, module in zip(_numbers(job, member), trained, strict=True):
        export(job.final(number), module, about)


def load_classifier(job: TrainJob) -> LoadedModel:
    """The fixed classifier: any model spec."""
    return load_model(job.classifier or "")


def right_answers(job: TrainJob, data: DeviceData | None = None) -> RightAnswers:
    """What the labels of ``select`` are made from, as far as it is counted; the same for all members."""
    objective = job.plan(0).objective
    assert isinstance(objective, Select)
    seed = int(job.options.get("seed", 0))
    data = load_job_data(job) if data is None else data
    return RightAnswers(load_classifier(job), data, job.plan(0).sigma, objective.n, job.out, seed)


def class_votes(job: TrainJob, data: DeviceData | None = None) -> ClassVotes:
    """What the soft labels of ``catrs`` are made from, as far as it is counted; the same for all members."""
    objective = job.plan(0).objective
    assert isinstance(objective, Catrs)
    data = load_job_data(job) if data is None else data
    seed = int(job.options.get("seed", 0))
    return ClassVotes(load_classifier(job), data, objective.label_sigma, objective.label_draws, job.out, seed)


def load_job_data(job: TrainJob) -> DeviceData:
    """The training split of the job's data."""
    dataset = load_dataset(job.data, split="train", limit=job.limit)
    return load_device_data(dataset, job.classes)


def _phrase(objective: Objective) -> str:
    settings = objective.settings()
    return re.sub(r"[{}' ]", "", ",".join(f"{key}={value}" for key, value in settings.items()))

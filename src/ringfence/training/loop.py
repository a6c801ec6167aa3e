"""The training loop: epochs of steps, a checkpoint after each, the same weights whether or not it was interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ringfence.errors import ArgumentError, DataError
from ringfence.training.checkpoints import Checkpoints, restore_modules
from ringfence.training.compiled import algorithms_tried
from ringfence.training.data import DeviceData
from ringfence.training.fabric import make_fabric
from ringfence.training.in_progress import TrainingInProgress
from ringfence.training.job import TrainingJob
from ringfence.training.log import Status
from ringfence.training.stepper import steps_of

REPORT_SECONDS = 2.0
"""Between two looks at the sums on the device: each look waits for the device once."""

Report = Callable[[Status], None]


def silent(status: Status) -> None:
    """Report nothing."""


def train(
    job: TrainingJob,
    members: Sequence[nn.Module],
    data: DeviceData,
    folder: Path,
    *,
    held_out: DeviceData | None = None,
    device: str = "auto",
    devices: int = 1,
    tensorboard: bool = False,
    on_status: Report = silent,
    stop_after: int | None = None,
) -> list[nn.Module]:
    """Train the members into a folder, or go on where it stopped; returns them, trained, on the host.

    With held-out data the best epoch's weights are kept too (``Checkpoints.load_best``). stop_after ends the
    session after so many epochs in all, as a kill would. Several devices: one process each, gradients averaged.
    """
    members = list(members)
    check(job, members, data, devices)
    fabric = make_fabric(device, devices, job.precision)
    training = partial(
        TrainingInProgress,
        job=job,
        members=members,
        data=data,
        held_out=held_out,
        folder=folder,
        tensorboard=tensorboard,
    )
    if devices == 1:
        fabric.launch()
        _go(fabric, [training], [on_status], stop_after)
    else:
        # Bound beforehand: Fabric rewrites the arguments of a launch, which frozen jobs do not allow.
        fabric.launch(partial(_go, trainings=[training], reports=[silent], last=stop_after))
    return _trained(job, members, folder)


def train_together(
    jobs: Sequence[TrainingJob],
    groups: Sequence[Sequence[nn.Module]],
    data: DeviceData,
    folders: Sequence[Path],
    *,
    held_out: DeviceData | None = None,
    device: str = "auto",
    tensorboard: bool = False,
    on_status: Callable[[int, Status], None] = lambda number, status: None,
) -> list[list[nn.Module]]:
    """Trainings that have nothing to do with each other, step by step at the same time, on one device.

    groups: the members of each. Jobs may differ in all but batch and precision, and be differently far. Each training
    ends with the weights that ``train`` finds for it; on CUDA with job.graph their steps overlap. on_status gets its
    place in the list.
    """
    if len({(one.batch, one.precision) for one in jobs}) > 1:
        received = ", ".join(sorted({f"{one.batch} in {one.precision}" for one in jobs}))
        raise ArgumentError("jobs", "must have the same batch and precision", received, "Train them apart.")
    fabric = make_fabric(device, 1, jobs[0].precision)
    fabric.launch()
    check(jobs[0], [member for group in groups for member in group], data, 1)
    data, held_out = data.to(fabric.device), held_out.to(fabric.device) if held_out else None  # once for all
    places = [i for i, folder in enumerate(folders) if Checkpoints(folder).epochs_done < jobs[i].epochs]
    trainings = [
        partial(
            TrainingInProgress,
            job=jobs[i],
            members=list(groups[i]),
            data=data,
            held_out=held_out,
            folder=folders[i],
            tensorboard=tensorboard,
        )
        for i in places
    ]
    if trainings:
        _go(fabric, trainings, [partial(on_status, i) for i in places])
    return [_trained(job, list(group), folder) for job, group, folder in zip(jobs, groups, folders, strict=True)]


def _trained(job: TrainingJob, members: list[nn.Module], folder: Path) -> list[nn.Module]:
    """The members with the weights of the last checkpoint, on the host, in evaluation mode."""
    found = Checkpoints(folder).load()
    assert found is not None
    members = [one.cpu() for one in members]
    with torch.no_grad():
        restore_modules(members, found[1], "ema" if job.ema is not None else "member")
    return [one.eval() for one in members]


def check(job: TrainingJob, members: Sequence[nn.Module], data: DeviceData, devices: int) -> None:
    """Refuse before the first step what would fail, or mislead, at a later one."""
    if job.batch > len(data):
        rule = f"must be at most the number of training inputs, {len(data)}"
        raise ArgumentError("batch", rule, job.batch, "Choose a smaller batch.")
    if job.batch % (devices * job.accumulate):
        rule = f"must divide over {devices} devices and {job.accumulate} micro-batches"
        raise ArgumentError("batch", rule, job.batch, "Choose a multiple.")
    rows = job.micro_batch(devices)
    normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for one in members for part in one.modules())
    if normed and rows == 1:
        rule = "batch norm needs more than one input per forward while training"
        raise ArgumentError("batch", rule, f"{rows} per device and micro-batch", "Choose a larger batch.")
    if int(data.y.min()) < 0 or int(data.y.max()) >= data.num_classes:
        rule = f"labels must be 0 to {data.num_classes - 1}"
        raise DataError("labels", rule, f"{int(data.y.min())} to {int(data.y.max())}", "Correct the labels.")
    if not torch.isfinite(data.x).all():
        raise DataError("inputs", "must be finite", "NaN or infinity", "Remove those inputs.")


def _go(
    fabric: Any,
    trainings: Sequence[Callable[[Any], TrainingInProgress]],
    reports: Sequence[Report],
    last: int | None = None,
) -> None:
    """All epochs that are left, or those up to the last one wanted; a training that is finished leaves the others."""
    # From the first forward on, which is that of the check of a compiled network.
    with algorithms_tried():
        made = [training(fabric) for training in trainings]
        for training in made:
            training.load()
        with ExitStack() as files:
            for training in made:
                files.callback(training.written)  # of every training, whatever ends this one or another
            _epochs(list(zip(made, reports, strict=True)), last)
        fabric.barrier()


def _epochs(trainings: list[tuple[TrainingInProgress, Report]], last: int | None) -> None:
    """Stretches of epochs with the same trainings and objectives: each is recorded once."""
    while trainings := [one for one in trainings if one[0].left(last) > 0]:
        stretch = min(training.stretch(last) for training, _ in trainings)
        step_all = steps_of([training.stepper for training, _ in trainings])
        for _ in range(stretch):
            _one_epoch(trainings, step_all)


def _one_epoch(trainings: Sequence[tuple[TrainingInProgress, Report]], step_all: Callable[[], None]) -> None:
    """The next epoch of every training, step by step at the same time."""
    for training, _ in trainings:
        training.begin()
    looked, steps = time.monotonic(), trainings[0][0].steps
    for step in range(steps):
        for training, _ in trainings:
            training.aim(step)
        step_all()
        if time.monotonic() - looked >= REPORT_SECONDS and step + 1 < steps:
            for training, report in trainings:
                report(training.look(step + 1))
            looked = time.monotonic()
    for training, report in trainings:
        report(training.end())

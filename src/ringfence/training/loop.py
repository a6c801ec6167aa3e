"""The training loop: epochs of steps, a checkpoint after each, the same weights whether or not it was interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ringfence.errors import ArgumentError, DataError
from ringfence.training.checkpoints import Checkpoints, Status, restore_modules
from ringfence.training.compared import algorithms_tried
from ringfence.training.data import DeviceData
from ringfence.training.fabric import make_fabric
from ringfence.training.in_progress import TrainingInProgress
from ringfence.training.job import TrainingJob
from ringfence.training.stepper import steps_of

REPORT_SECONDS = 2.0
"""Between two looks at the sums on the device: each look waits for the device once."""

Report = Callable[[int, Status], None]
"""Takes the place of a training among those that go together, and how far it is."""


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
    on_status: Callable[[Status], None] = lambda status: None,
    stop_after: int | None = None,
) -> list[nn.Module]:
    """Train the members into a folder, or go on where it stopped; returns them, trained, on the host.

    With held-out data the best epoch's weights are kept too (``Checkpoints.load_best``). stop_after ends the
    session after so many epochs in all, as a kill would. Several devices: one process each, gradients averaged.
    """
    (trained,) = train_together(
        [job],
        [members],
        data,
        [folder],
        held_out=held_out,
        device=device,
        devices=devices,
        tensorboard=tensorboard,
        on_status=lambda _, status: on_status(status),
        stop_after=stop_after,
    )
    return trained


def train_together(
    jobs: Sequence[TrainingJob],
    groups: Sequence[Sequence[nn.Module]],
    data: DeviceData,
    folders: Sequence[Path],
    *,
    held_out: DeviceData | None = None,
    device: str = "auto",
    devices: int = 1,
    tensorboard: bool = False,
    on_status: Report = lambda place, status: None,
    stop_after: int | None = None,
) -> list[list[nn.Module]]:
    """Trainings that have nothing to do with each other, step by step at the same time, on one device.

    groups: the members of each. Jobs may differ in all but batch and precision, and be differently far. Each training
    ends with the weights that ``train`` finds for it; on CUDA with job.graph their steps overlap. on_status gets its
    place in the list.
    """
    if len({(one.batch, one.precision) for one in jobs}) > 1:
        received = ", ".join(sorted({f"{one.batch} in {one.precision}" for one in jobs}))
        raise ArgumentError("jobs", "must have the same batch and precision", received, "Train them apart.")
    check_data(data)
    for job, group in zip(jobs, groups, strict=True):
        check(job, group, data, devices)
    fabric = make_fabric(device, devices, jobs[0].precision)
    if devices == 1:
        fabric.launch()  # data goes to the device once for all; several processes fetch their own
        data, held_out = data.to(fabric.device), held_out.to(fabric.device) if held_out else None
    begin = partial(TrainingInProgress, data=data, held_out=held_out, tensorboard=tensorboard)
    trainings = {
        place: partial(begin, job=job, members=list(groups[place]), folder=folders[place])
        for place, job in enumerate(jobs)
        if Checkpoints(folders[place]).epochs_done < job.epochs
    }
    if devices == 1:
        _go(fabric, trainings, on_status, stop_after)
    elif trainings:
        # Bound beforehand: Fabric rewrites the arguments of a launch, which frozen jobs do not allow.
        fabric.launch(partial(_go, trainings=trainings, report=_silent, last=stop_after))
    return [_trained(job, list(group), folder) for job, group, folder in zip(jobs, groups, folders, strict=True)]


def _silent(place: int, status: Status) -> None:
    """What other processes report: a function that can be sent to them."""


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


def check_data(data: DeviceData) -> None:
    """Refuse inputs and labels that no training can use."""
    if int(data.y.min()) < 0 or int(data.y.max()) >= data.num_classes:
        rule = f"labels must be 0 to {data.num_classes - 1}"
        raise DataError("labels", rule, f"{int(data.y.min())} to {int(data.y.max())}", "Correct the labels.")
    if not torch.isfinite(data.x).all():
        raise DataError("inputs", "must be finite", "NaN or infinity", "Remove those inputs.")


def _go(
    fabric: Any, trainings: Mapping[int, Callable[[Any], TrainingInProgress]], report: Report, last: int | None
) -> None:
    """All epochs that are left, or those up to the last one wanted; a training that is finished leaves the others."""
    # From the first forward on, which is that of the check of a compiled network.
    with algorithms_tried():
        made = {place: training(fabric) for place, training in trainings.items()}
        for training in made.values():
            training.load()
        with ExitStack() as files:
            for training in made.values():
                files.callback(training.written)  # of every training, whatever ends this one or another
            _epochs(made, report, last)
        fabric.barrier()


def _epochs(trainings: Mapping[int, TrainingInProgress], report: Report, last: int | None) -> None:
    """Stretches of epochs with the same trainings and objectives: each is recorded once."""
    while trainings := {place: one for place, one in trainings.items() if one.left(last) > 0}:
        stretch = min(one.stretch(last) for one in trainings.values())
        step_all = steps_of([one.stepper for one in trainings.values()])
        for _ in range(stretch):
            _one_epoch(trainings, report, step_all)


def _one_epoch(trainings: Mapping[int, TrainingInProgress], report: Report, step_all: Callable[[], None]) -> None:
    """The next epoch of every training, step by step at the same time."""
    for one in trainings.values():
        one.begin()
    looked, steps = time.monotonic(), next(iter(trainings.values())).steps
    for step in range(steps):
        for one in trainings.values():
            one.aim(step)
        step_all()
        if time.monotonic() - looked >= REPORT_SECONDS and step + 1 < steps:
            for place, one in trainings.items():
                report(place, one.look(step + 1))
            looked = time.monotonic()
    for place, one in trainings.items():
        report(place, one.end())

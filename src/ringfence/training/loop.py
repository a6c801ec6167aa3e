"""The training loop: epochs of steps, a checkpoint after each, the same weights whether or not it was interrupted."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.errors import ArgumentError, DataError
from ringfence.training.checkpoints import Checkpoints, Progressed, module_tensors, restore_modules
from ringfence.training.data_on_device import DeviceData
from ringfence.training.fabric import make_fabric
from ringfence.training.log import EpochLog
from ringfence.training.plan import TrainingPlan
from ringfence.training.schedule import warmth
from ringfence.training.stepper import Stepper

REPORT_SECONDS = 2.0
"""Between two looks at the sums on the device: each look waits for the device once."""

HELD_OUT_COPIES = 4
"""Noise draws per held-out input when the noisy accuracy is measured."""


@final
@dataclass(frozen=True)
class Status:
    """How far a training is: epoch of epochs, step within the epoch, mean loss terms and noisy accuracy so far.

    accuracy is that of the training batches; held_out is known after an epoch where inputs were held out;
    left: expected seconds to the end.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    terms: dict[str, float] = field(default_factory=dict)
    held_out: float | None = None
    rate: float = 0.0
    seconds: float = 0.0
    left: float = 0.0


def silent(status: Status) -> None:
    """Report nothing."""


def train(
    plan: TrainingPlan,
    members: Sequence[nn.Module],
    data: DeviceData,
    folder: Path,
    *,
    held_out: DeviceData | None = None,
    device: str = "auto",
    devices: int = 1,
    tensorboard: bool = False,
    on_status: Callable[[Status], None] = silent,
    stop_after: int | None = None,
) -> list[nn.Module]:
    """Train the members into a folder, or go on where it stopped; returns them, trained, on the host.

    With held-out data the best epoch's weights are kept too (``Checkpoints.load_best``). stop_after ends the
    session after so many epochs in all, as a kill would. Several devices: one process each, gradients averaged.
    """
    members = list(members)
    check(plan, members, data, devices)
    fabric = make_fabric(device, devices, plan.precision)
    last = plan.epochs if stop_after is None else min(stop_after, plan.epochs)
    if devices == 1:
        fabric.launch()
        _run(fabric, plan, members, data, held_out, folder, tensorboard, on_status, last)
    else:
        # Bound beforehand: Fabric rewrites the arguments of a launch, which frozen plans do not allow.
        work = partial(
            _run,
            plan=plan,
            members=members,
            data=data,
            held_out=held_out,
            folder=folder,
            tensorboard=tensorboard,
            on_status=silent,
            last=last,
        )
        fabric.launch(work)
    found = Checkpoints(folder).load()
    assert found is not None
    prefix = "ema" if plan.ema is not None else "member"
    members = [one.cpu() for one in members]
    with torch.no_grad():
        restore_modules(members, found[1], prefix)
    return [one.eval() for one in members]


def check(plan: TrainingPlan, members: Sequence[nn.Module], data: DeviceData, devices: int) -> None:
    """Refuse before the first step what would fail, or mislead, at a later one."""
    if plan.batch > len(data):
        rule = f"must be at most the number of training inputs, {len(data)}"
        raise ArgumentError("--batch", rule, plan.batch, "Choose a smaller batch.")
    if plan.batch % (devices * plan.accumulate):
        rule = f"must divide over {devices} devices and {plan.accumulate} micro-batches"
        raise ArgumentError("--batch", rule, plan.batch, "Choose a multiple.")
    rows = plan.batch // (devices * plan.accumulate)
    normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for one in members for part in one.modules())
    if normed and rows == 1:
        rule = "batch norm needs more than one input per forward while training"
        raise ArgumentError("--batch", rule, f"{rows} per device and micro-batch", "Choose a larger batch.")
    if int(data.y.min()) < 0 or int(data.y.max()) >= data.num_classes:
        rule = f"labels must be 0 to {data.num_classes - 1}"
        raise DataError("labels", rule, f"{int(data.y.min())} to {int(data.y.max())}", "Correct the labels.")
    if not torch.isfinite(data.x).all():
        raise DataError("inputs", "must be finite", "NaN or infinity", "Remove those inputs.")


def _run(
    fabric: Any,
    plan: TrainingPlan,
    members: list[nn.Module],
    data: DeviceData,
    held_out: DeviceData | None,
    folder: Path,
    tensorboard: bool,
    on_status: Callable[[Status], None],
    last: int,
) -> None:
    device = fabric.device
    data, held_out = data.to(device), held_out.to(device) if held_out else None
    if fabric.world_size > 1:
        members = copy.deepcopy(members)  # tensors sent to another process share their memory with the sender
    colour = data.x.dim() == 4 and data.x.shape[1] > 1  # channels last: twice as fast there, and no gain on grey
    for one in members:
        one.to(device).train()
        if colour:
            one.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stepper = Stepper(plan, members, data, fabric)
    checkpoints = Checkpoints(folder)
    found = checkpoints.load()
    progress = Progressed(0, 0)
    if found is not None:
        progress = found[0]
        with torch.no_grad():
            restore_modules(members, found[1])
        stepper.restore(found[1])
    log = EpochLog(folder, progress.epoch, tensorboard and fabric.is_global_zero)
    begun = time.monotonic()
    first = progress.epoch
    for epoch in range(first, last):
        status = _epoch(stepper, epoch, on_status if fabric.is_global_zero else silent, begun, first)
        fabric.barrier()
        judged = stepper.averaged or members
        if held_out is not None:
            accuracy = noisy_accuracy(judged, held_out, plan.sigma, plan.generator_seed("held out"))
            status = replace(status, held_out=accuracy)
        better = status.held_out is not None and status.held_out > progress.best_accuracy
        progress = Progressed(
            epoch + 1,
            (epoch + 1) * status.steps,
            status.held_out if better and status.held_out is not None else progress.best_accuracy,
            epoch + 1 if better else progress.best_epoch,
        )
        if fabric.is_global_zero:
            if better:
                checkpoints.save_best(judged)
            checkpoints.save(progress, {**module_tensors(members), **stepper.tensors()})
            log.add(status)
            on_status(status)
    fabric.barrier()


def _epoch(stepper: Stepper, epoch: int, report: Callable[[Status], None], begun: float, first: int) -> Status:
    """All steps of one epoch; the sums are looked at now and then, and at the end."""
    plan, data, fabric = stepper.plan, stepper.data, stepper.fabric
    steps = len(data) // plan.batch
    stepper.clear(epoch, warmth(epoch, plan.noise_warmup), warmth(epoch, plan.attack_warmup))
    # The order is drawn on the host, so that it does not depend on the device; the copy is one per epoch.
    shuffle = torch.Generator().manual_seed(plan.generator_seed("order", epoch))
    order = torch.randperm(len(data), generator=shuffle)[: steps * plan.batch].view(steps, fabric.world_size, -1)
    order = order[:, fabric.global_rank].to(stepper.device)
    looked = time.monotonic()
    for step in range(steps):
        rate = plan.schedule.at(epoch * steps + step, steps, plan.epochs)
        stepper.step(order[step], rate)
        if time.monotonic() - looked >= REPORT_SECONDS and step + 1 < steps:
            report(_look(stepper, epoch, step + 1, steps, rate, begun, first))
            looked = time.monotonic()
    return _look(stepper, epoch, steps, steps, rate, begun, first)


def _look(stepper: Stepper, epoch: int, step: int, steps: int, rate: float, begun: float, first: int) -> Status:
    """Read the sums (this waits for the device) and stop where the loss left the numbers."""
    plan = stepper.plan
    bad = int(stepper.first_bad)
    if bad < 0 and step == steps and not all(bool(torch.isfinite(one).all()) for one in stepper.parameters):
        bad = steps - 1
    if bad >= 0:
        where = f"NaN or infinity at step {epoch * steps + bad} (epoch {epoch + 1}, step {bad + 1} of {steps})"
        kept = f"the checkpoint after epoch {epoch} is kept" if epoch else "no epoch was finished"
        raise ArgumentError("loss", "must stay finite", where, f"Lower --lr or the penalty weights; {kept}.")
    values = (stepper.sums / step).tolist()
    seconds = time.monotonic() - begun
    done = (epoch - first) * steps + step
    left = seconds / done * (plan.epochs * steps - epoch * steps - step)
    terms = dict(zip(stepper.names, values[2:], strict=True))
    return Status(epoch + 1, plan.epochs, step, steps, values[0], values[1], terms, None, rate, seconds, left)


@torch.no_grad()
def noisy_accuracy(
    members: Sequence[nn.Module], data: DeviceData, sigma: float, seed: int, copies: int = HELD_OUT_COPIES
) -> float:
    """Share of right answers of the members' mean softmax under noise, over ``copies`` draws per input."""
    trained = [one.training for one in members]
    generator = torch.Generator(data.x.device).manual_seed(seed)
    hits = torch.zeros((), device=data.x.device)
    for one in members:
        one.eval()
    for _ in range(copies):
        for x, y in zip(torch.split(data.x, 2048), torch.split(data.y, 2048), strict=True):
            noisy = x + sigma * torch.randn(x.shape, generator=generator, device=x.device)
            scores: Tensor = torch.stack([one(noisy).softmax(-1) for one in members]).mean(0)
            hits += (scores.argmax(1) == y).sum()
    for one, mode in zip(members, trained, strict=True):
        one.train(mode)
    return float(hits) / (copies * len(data))

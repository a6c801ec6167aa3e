"""One training in progress: from the last checkpoint to the next."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.classifiers import kinds_of, probabilities
from ringfence.errors import ArgumentError
from ringfence.training.checkpoints import (
    Checkpoints,
    EpochLog,
    Progressed,
    Status,
    module_tensors,
    on_host,
    restore_modules,
)
from ringfence.training.data import DeviceData, TrainingNoise
from ringfence.training.job import TrainingJob, warmth
from ringfence.training.stepper import Stepper

WEIGHTS = "sampling.weights"
"""Where a checkpoint keeps the weights with which inputs are drawn."""

HELD_OUT_COPIES = 4
"""Noise draws per held-out input when the noisy accuracy is measured."""


@final
class TrainingInProgress:
    """A training in a folder: ``load`` its last checkpoint, then for every epoch ``begin``, ``aim`` each step, ``end``.

    Who takes the steps that were aimed is left to the caller: one training, or several together. Files are written
    beside the steps of the next epoch; ``written`` waits for them.
    """

    def __init__(
        self,
        fabric: Any,
        job: TrainingJob,
        members: list[nn.Module],
        data: DeviceData,
        held_out: DeviceData | None,
        folder: Path,
        tensorboard: bool = False,
    ) -> None:
        if fabric.world_size > 1:
            members = copy.deepcopy(members)  # tensors sent to another process share their memory with the sender
        data = data.to(fabric.device)
        self.fabric, self.job, self.members = fabric, job, members
        self._held_out = held_out.to(fabric.device) if held_out else None
        self._folder, self._tensorboard = folder, tensorboard
        colour = data.x.dim() == 4 and data.x.shape[1] > 1  # channels last: twice as fast there, and no gain on grey
        for one in members:
            one.to(fabric.device).train()
            if colour:
                one.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.stepper = Stepper(job, members, data, fabric)
        self.steps = len(data) // job.batch
        self._checkpoints = Checkpoints(folder)
        self._weights: Tensor | None = None
        self.progress = Progressed(0, 0)
        self._writer, self._writing = ThreadPoolExecutor(1, "checkpoint"), Future[None]()
        self._writing.set_result(None)

    def load(self) -> None:
        """Go on from the last checkpoint."""
        found = self._checkpoints.load()
        if found is not None:
            self.progress = found[0]
            with torch.no_grad():
                restore_modules(self.members, found[1])
            self.stepper.restore(found[1])
            self._weights = found[1].get(WEIGHTS)
        board = self._tensorboard and self.fabric.is_global_zero
        self._log = EpochLog(self._folder, self.progress.epoch, board)
        self._begun, self._first = time.monotonic(), self.progress.epoch

    def left(self, last: int | None = None) -> int:
        """Epochs to go, to the end or to the last one wanted."""
        return (self.job.epochs if last is None else min(last, self.job.epochs)) - self.progress.epoch

    def stretch(self, last: int | None = None) -> int:
        """Epochs to go until the objective changes; the stepper gets the present one, to record."""
        first = self.progress.epoch
        self.stepper.objective = now = self.job.objective.at(first)
        return next((n for n in range(1, self.left(last)) if self.job.objective.at(first + n) != now), self.left(last))

    def begin(self) -> None:
        """The next epoch's order, randomness and warm-ups."""
        job, epoch = self.job, self.progress.epoch
        self.epoch = epoch
        self._weights = job.objective.weights(epoch, self._weights, partial(self._right, epoch))
        self.stepper.clear(epoch, warmth(epoch, job.noise_warmup), warmth(epoch, job.attack_warmup))
        # The order is drawn on the host, so that it does not depend on the device; the copy is one per epoch.
        shuffle = torch.Generator().manual_seed(job.generator_seed("order", epoch))
        count = self.steps * job.batch
        if self._weights is None:
            order = torch.randperm(len(self.stepper.data), generator=shuffle)[:count]
        else:
            order = torch.multinomial(self._weights.cpu(), count, replacement=True, generator=shuffle)
        order = order.view(self.steps, self.fabric.world_size, -1)[:, self.fabric.global_rank]
        self._order = order.to(self.stepper.device)

    def _right(self, epoch: int, copies: int) -> Tensor:
        """Share (N,) of so many noisy copies of every training input that the members' mean softmax answers rightly."""
        seed = self.job.generator_seed("right", epoch, copies)
        found = right_answers(self.members, self.stepper.data, self.stepper.noise, seed, copies)
        return found.cpu() / copies

    def aim(self, step: int) -> None:
        """Choose the inputs and the learning rate of a step of this epoch."""
        self._rate = self.job.schedule.at(self.epoch * self.steps + step, self.steps, self.job.epochs)
        self.stepper.aim(self._order[step], self._rate)

    def end(self) -> Status:
        """Judge the epoch; its line of the log and its checkpoint begin to be written."""
        status = self.look(self.steps)
        self.fabric.barrier()
        judged = self.stepper.averaged or self.members
        done, best = self.epoch + 1, dict[str, Any]()
        if self._held_out is not None:
            seed = self.job.generator_seed("held out")
            accuracy = noisy_accuracy(judged, self._held_out, self.stepper.noise, seed)
            status = replace(status, held_out=accuracy)
            if accuracy > self.progress.best_accuracy:
                best = {"best_accuracy": accuracy, "best_epoch": done}
        self.progress = replace(self.progress, epoch=done, step=done * self.steps, **best)
        if self.fabric.is_global_zero:
            weights = {} if self._weights is None else {WEIGHTS: self._weights}
            kept = on_host({**module_tensors(self.members), **self.stepper.tensors(), **weights})
            best_kept = on_host(module_tensors(judged)) if best else None
            self.written()
            self._writing = self._writer.submit(self._write, self.progress, status, kept, best_kept)
        return status

    def _write(
        self, progress: Progressed, status: Status, kept: Mapping[str, Tensor], best: Mapping[str, Tensor] | None
    ) -> None:
        if best is not None:
            self._checkpoints.save_best(best)
        self._log.add(status)  # first: a line without its checkpoint is dropped and made again, not the reverse
        self._checkpoints.save(progress, kept)

    def written(self) -> None:
        """Wait until the files of the last epoch are there; what went wrong with them is raised here."""
        self._writing.result()

    def look(self, step: int) -> Status:
        """How far it is after so many steps of the epoch (waits for the device); a loss that is no number ends it."""
        job, stepper, epoch, steps = self.job, self.stepper, self.epoch, self.steps
        bad = int(stepper.first_bad)
        if bad < 0 and step == steps and not all_finite(stepper.parameters):
            bad = steps - 1
        if bad >= 0:
            where = f"NaN or infinity at step {epoch * steps + bad} (epoch {epoch + 1}, step {bad + 1} of {steps})"
            kept = f"the checkpoint after epoch {epoch} is kept" if epoch else "no epoch was finished"
            raise ArgumentError(
                "loss", "must stay finite", where, f"Lower the learning rate or the penalty weights; {kept}."
            )
        values = (stepper.sums / step).tolist()
        seconds = time.monotonic() - self._begun
        done = (epoch - self._first) * steps + step
        left = seconds / done * (job.epochs * steps - epoch * steps - step)
        terms = dict(zip(stepper.names, values[2:], strict=True))
        return Status(epoch + 1, job.epochs, step, steps, values[0], values[1], terms, None, self._rate, seconds, left)


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether every number is finite; a device is asked once, however many tensors there are."""
    return bool(torch.cat([one.detach().flatten() for one in tensors]).isfinite().all())


def noisy_accuracy(members: Sequence[nn.Module], data: DeviceData, noise: TrainingNoise, seed: int) -> float:
    """Share of right answers of the members' mean softmax under noise, over HELD_OUT_COPIES draws per input."""
    return float(right_answers(members, data, noise, seed, HELD_OUT_COPIES).sum()) / (HELD_OUT_COPIES * len(data))


@torch.no_grad()
def right_answers(
    members: Sequence[nn.Module], data: DeviceData, noise: TrainingNoise, seed: int, copies: int
) -> Tensor:
    """How many (N,) of so many noisy copies of each input, at the full sigma, the mean softmax answers rightly."""
    trained = [one.training for one in members]
    generator = torch.Generator(data.x.device).manual_seed(seed)
    hits = torch.zeros(len(data), device=data.x.device)
    for one in members:
        one.eval()
    for _ in range(copies):
        right = []
        for x, y in zip(torch.split(data.x, 2048), torch.split(data.y, 2048), strict=True):
            noisy = x + noise.sigma * noise.unit.standard(x.shape, generator)
            scores: Tensor = torch.stack([probabilities(one(noisy), kinds_of(one)) for one in members]).mean(0)
            right.append(scores.argmax(1) == y)
        hits += torch.cat(right)
    for one, mode in zip(members, trained, strict=True):
        one.train(mode)
    return hits

"""One optimiser step: batch, noise, objective, backward, SGD; counted on the device.

Steps of one or several trainings can be recorded as one CUDA graph: small networks are launch-bound, and a replay is
one launch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.training.checkpoints import module_tensors, undone
from ringfence.training.data import DeviceData, TrainingNoise, augment, rows
from ringfence.training.fabric import attackable, average_gradients, compile_members
from ringfence.training.job import TrainingJob

BRANCHES = 5
"""Of a recorded graph at most: ten at a time take longer than five with two trainings each (decision 17)."""
WARM_UP_STEPS = 3
"""Steps before a graph is recorded, so that libraries have chosen their algorithms; they are undone."""


@final
class Stepper:
    """Members, optimiser and everything a step reads or writes, on one device.

    sums: total loss, share right and every term, added up since ``clear``; first_bad: number of the first
    step since ``clear`` whose loss was not finite, -1 while there is none. Neither is read during a step.
    """

    def __init__(self, job: TrainingJob, members: list[nn.Module], data: DeviceData, fabric: Any) -> None:
        self.job, self.members, self.data, self.fabric = job, members, data, fabric
        self.objective = job.objective
        self.device = data.x.device
        self.parameters = [one for member in members for one in member.parameters() if one.requires_grad]
        cuda = self.device.type == "cuda"
        self.recordable = job.graph and cuda and fabric.world_size == 1
        rate: Any = torch.tensor(job.schedule.lr, device=self.device) if self.recordable else job.schedule.lr
        self.optimizer = torch.optim.SGD(
            self.parameters,
            lr=rate,
            momentum=job.momentum,
            nesterov=job.nesterov and job.momentum > 0,
            weight_decay=job.weight_decay,
            fused=cuda or None,
        )
        self.averaged = copy.deepcopy(members) if job.ema is not None else None
        self._run = compile_members(members, self._example(), fabric, self.recordable) if job.compile else members
        if job.fused:
            self._run = attackable(members, self._run, self._example())
        reached, attack = (torch.ones((), device=self.device) for _ in range(2))
        self.noise = TrainingNoise(job.sigma, reached, attack, job.unit_noise)
        self.generator = torch.Generator(self.device)
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._number = torch.zeros((), dtype=torch.int64, device=self.device)
        self._rows = torch.zeros(job.batch // fabric.world_size, dtype=torch.int64, device=self.device)

    def _example(self) -> Tensor:
        """Inputs as every forward of a step gets them: a compiler makes one graph for each shape."""
        x = self.data.x[: self.job.micro_batch(self.fabric.world_size)]
        return rows(x, x.new_zeros(self.job.objective.copies, *x.shape))

    def aim(self, numbers: Tensor, rate: float) -> None:
        """Choose what the next step does: the inputs of these numbers (batch,), at this learning rate."""
        self._rows.copy_(numbers)
        group = self.optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

    def clear(self, epoch: int, reached: float, attack: float) -> None:
        """Begin an epoch: its randomness, its warm-ups, empty sums."""
        self.generator.manual_seed(self.job.generator_seed("noise", epoch, self.fabric.global_rank))
        torch.manual_seed(self.job.generator_seed("layers", epoch, self.fabric.global_rank) & 0xFFFFFFFF)
        self.noise.reached.fill_(reached)
        self.noise.attack.fill_(attack)
        self.sums.zero_()
        self.first_bad.fill_(-1)
        self._number.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Momentum of every parameter and the averaged weights, for a checkpoint."""
        state = self.optimizer.state
        found = {
            f"momentum.{i}": state[one]["momentum_buffer"]
            for i, one in enumerate(self.parameters)
            if state.get(one, {}).get("momentum_buffer") is not None
        }
        return found | module_tensors(self.averaged or [], "ema")

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of ``tensors``, in place where a graph points at the storage; without an entry: zero."""
        for i, one in enumerate(self.parameters):
            kept = tensors.get(f"momentum.{i}")
            there = self.optimizer.state[one].get("momentum_buffer") if one in self.optimizer.state else None
            if there is not None:
                there.zero_() if kept is None else there.copy_(kept)
            elif kept is not None:
                # Laid out like the parameter, as fused SGD demands: a checkpoint forgets channels last.
                self.optimizer.state[one]["momentum_buffer"] = torch.empty_like(one).copy_(kept)
        for i, member in enumerate(self.averaged or []):
            for key, value in member.state_dict().items():
                source = tensors.get(f"ema.{i}.{key}", self.members[i].state_dict()[key])
                value.copy_(source)

    def step(self) -> None:
        """The step that was aimed."""
        self.optimizer.zero_grad(set_to_none=True)
        measured: list[Tensor] = []
        for part in self._rows.chunk(self.job.accumulate):
            batch = self.data.batch(part)
            batch = replace(batch, x=augment(batch.x, self.job.crop, self.job.flip, self.generator))
            with self.fabric.autocast():
                found = self.objective(self._run, batch, self.noise, self.generator)
            total = found.total
            (total / self.job.accumulate).backward()  # type: ignore[no-untyped-call]
            self.names = list(found.terms)
            measured.append(torch.stack([total, found.right, *found.terms.values()]).detach().float())
        if self.fabric.world_size > 1:
            average_gradients(self.fabric, self.parameters)
        if self.job.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.job.clip)
        self.optimizer.step()
        if self.averaged is not None and self.job.ema is not None:
            self._average(self.job.ema)
        self._note(torch.stack(measured).mean(0))

    def _note(self, values: Tensor) -> None:
        if len(self.sums) != len(values):
            self.sums = torch.zeros_like(values)
        self.sums += values
        bad = (self.first_bad < 0) & ~torch.isfinite(values[0])
        self.first_bad.copy_(torch.where(bad, self._number, self.first_bad))
        self._number += 1

    @torch.no_grad()
    def _average(self, decay: float) -> None:
        for old, new in zip(self.averaged or [], self.members, strict=True):
            for mean, now in zip(old.parameters(), new.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
            for kept, buffer in zip(old.buffers(), new.buffers(), strict=True):
                kept.copy_(buffer)


def steps_of(steppers: Sequence[Stepper]) -> Callable[[], None]:
    """A function that takes the aimed step of every one: a recorded graph on CUDA where jobs ask for it."""
    if all(one.recordable for one in steppers):
        return record(steppers).replay

    def one_after_the_other() -> None:
        for stepper in steppers:
            stepper.step()

    return one_after_the_other


def record(steppers: Sequence[Stepper]) -> torch.cuda.CUDAGraph:
    """One graph with a few branches, which overlap on the device, where processes would take turns.

    What a stepper does in it depends on its own memory and generator alone, so that it ends with the weights that
    it would have found by itself. (Threads that replay a graph each were tried and did not end.)
    """
    device = steppers[0].device
    branches: list[Any] = [torch.cuda.Stream(device) for _ in steppers[:BRANCHES]]  # type: ignore[no-untyped-call]
    streams = [branches[number % BRANCHES] for number in range(len(steppers))]
    main = torch.cuda.current_stream(device)
    graph = torch.cuda.CUDAGraph()
    kept = [{name: value.clone() for name, value in one.tensors().items()} for one in steppers]
    with undone([member for one in steppers for member in one.members]):
        for stepper, stream in zip(steppers, streams, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_STEPS):
                    stepper.step()
            main.wait_stream(stream)
            graph.register_generator_state(stepper.generator)
            stepper.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            begun = torch.cuda.current_stream(device)
            for stream in branches:
                stream.wait_stream(begun)
            for stepper, stream in zip(steppers, streams, strict=True):
                with torch.cuda.stream(stream):
                    stepper.step()
            for stream in branches:
                begun.wait_stream(stream)
    for stepper, tensors in zip(steppers, kept, strict=True):
        stepper.restore(tensors)
    return graph

"""One optimiser step: batch, noise, objective, backward, SGD; counted on the device."""

from __future__ import annotations

import copy
from typing import Any, final

import torch
from torch import Tensor, nn

from ringfence.training.compiled import compile_members
from ringfence.training.data_on_device import DeviceData, augment
from ringfence.training.fabric import average_gradients
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import rows
from ringfence.training.plan import TrainingPlan


@final
class Stepper:
    """Members, optimiser and everything a step reads or writes, on one device.

    sums: total loss, share right and every term, added up since ``clear``; first_bad: number of the first
    step since ``clear`` whose loss was not finite, -1 while there is none. Neither is read during a step.
    """

    def __init__(self, plan: TrainingPlan, members: list[nn.Module], data: DeviceData, fabric: Any) -> None:
        self.plan, self.members, self.data, self.fabric = plan, members, data, fabric
        self.objective = plan.objective
        self.device = data.x.device
        self.parameters = [one for member in members for one in member.parameters() if one.requires_grad]
        cuda = self.device.type == "cuda"
        self.recordable = plan.graph and cuda and fabric.world_size == 1
        rate: Any = torch.tensor(plan.schedule.lr, device=self.device) if self.recordable else plan.schedule.lr
        self.optimizer = torch.optim.SGD(
            self.parameters,
            lr=rate,
            momentum=plan.momentum,
            nesterov=plan.nesterov and plan.momentum > 0,
            weight_decay=plan.weight_decay,
            fused=cuda or None,
        )
        self.averaged = copy.deepcopy(members) if plan.ema is not None else None
        self._run = compile_members(members, self._example(), fabric) if plan.compile else members
        self.noise = TrainingNoise(plan.sigma, torch.ones((), device=self.device), torch.ones((), device=self.device))
        self.generator = torch.Generator(self.device)
        self.names: list[str] = []
        self.sums = torch.zeros(0, device=self.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device)
        self._number = torch.zeros((), dtype=torch.int64, device=self.device)
        self._rows = torch.zeros(plan.batch // fabric.world_size, dtype=torch.int64, device=self.device)

    def _example(self) -> Tensor:
        """Inputs as every forward of a step gets them: a compiler makes one graph for each shape."""
        x = self.data.x[: self.plan.micro_batch(self.fabric.world_size)]
        return rows(x, x.new_zeros(self.plan.objective.copies, *x.shape))

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
        self.generator.manual_seed(self.plan.generator_seed("noise", epoch, self.fabric.global_rank))
        torch.manual_seed(self.plan.generator_seed("layers", epoch, self.fabric.global_rank) & 0xFFFFFFFF)
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
        for i, member in enumerate(self.averaged or []):
            found.update({f"ema.{i}.{key}": value for key, value in member.state_dict().items()})
        return found

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
        for part in self._rows.chunk(self.plan.accumulate):
            x = augment(self.data.x[part], self.plan.crop, self.plan.flip, self.generator)
            with self.fabric.autocast():
                soft = None if self.data.soft is None else self.data.soft[part]
                found = self.objective(self._run, x, self.data.y[part], self.noise, self.generator, soft)
            total = found.total
            (total / self.plan.accumulate).backward()  # type: ignore[no-untyped-call]
            self.names = list(found.terms)
            measured.append(torch.stack([total, found.right, *found.terms.values()]).detach().float())
        if self.fabric.world_size > 1:
            average_gradients(self.fabric, self.parameters)
        if self.plan.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.plan.clip)
        self.optimizer.step()
        if self.averaged is not None and self.plan.ema is not None:
            self._average(self.plan.ema)
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

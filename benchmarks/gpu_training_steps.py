"""Training steps that ``gpu_training.py`` times: plain PyTorch's, ours as ``ringfence train`` runs it, stacked ones."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from ringfence.classifiers.architectures import build_architecture
from ringfence.training import DeviceData, TrainingJob
from ringfence.training.compared import algorithms_tried
from ringfence.training.data import augment
from ringfence.training.fabric import make_fabric
from ringfence.training.in_progress import TrainingInProgress
from ringfence.training.objectives import NoiseAugmentation, Objective
from ringfence.training.stepper import steps_of

SIGMA = 0.25
JOINT = 3
"""Members of a joint training."""

Step = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """The network and how large everything is; repeats: steps of one timing, of which the median of five counts."""

    arch: str
    device: torch.device
    batch: int
    images: int
    repeats: int

    @property
    def cuda(self) -> bool:
        """Whether steps can be recorded."""
        return self.device.type == "cuda"

    @property
    def steps(self) -> int:
        """Steps of an epoch at this batch."""
        return self.images // self.batch

    @property
    def depth(self) -> int:
        """Of a ResNet."""
        return int(self.arch.removeprefix("resnet"))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image: MNIST's for LeNets, CIFAR-10's otherwise."""
        return (1, 28, 28) if self.arch.startswith("lenet") else (3, 32, 32)

    def data(self) -> DeviceData:
        """Random images and soft labels: rates do not depend on them."""
        torch.manual_seed(0)
        x = torch.rand(self.images, *self.shape, device=self.device)
        soft = torch.randn(self.images, 10, device=self.device).softmax(1)
        return DeviceData(x, torch.arange(self.images, device=self.device) % 10, 10, soft)


def network(size: Size, seed: int = 0) -> nn.Module:
    """A fresh network, channels last on colour images as our training has them."""
    torch.manual_seed(seed)
    made = build_architecture(size.arch).to(size.device).train()
    if size.shape[0] > 1:
        made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def autocast(size: Size) -> Any:
    return torch.autocast(size.device.type, torch.bfloat16, enabled=size.cuda)


def sgd(size: Size, parameters: Sequence[Tensor]) -> torch.optim.SGD:
    """The optimiser of our stepper."""
    rate: Any = torch.tensor(0.1, device=size.device) if size.cuda else 0.1
    fused = size.cuda or None
    return torch.optim.SGD(parameters, rate, 0.9, weight_decay=1e-4, nesterov=True, fused=fused)


def recorded(size: Size, step: Step, generators: Sequence[torch.Generator] = ()) -> Step:
    """The step as one CUDA graph; as it is without CUDA."""
    if not size.cuda:
        return step
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    for one in generators:
        graph.register_generator_state(one)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(size: Size, step: Step) -> float:
    """Milliseconds of one step: median over five timings."""
    for _ in range(2):
        step()
    found = []
    for _ in range(5):
        if size.cuda:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(size.repeats):
            step()
        if size.cuda:
            torch.cuda.synchronize()
        found.append(1000 * (time.perf_counter() - begin) / size.repeats)
    return statistics.median(found)


def kernels(size: Size, step: Step, top: int = 40) -> dict[str, Any]:
    """What one step launches: number and microseconds in all and by kernel, the longest first."""
    if not size.cuda:
        return {"launches": 0, "us": 0.0, "kernels": []}
    activities = [torch.profiler.ProfilerActivity.CUDA]
    steps = 3
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    counts: dict[str, list[float]] = {}
    for event in profile.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA and event.device_time_total > 0:
            entry = counts.setdefault(event.name, [0, 0.0])
            entry[0] += 1 / steps
            entry[1] += event.device_time_total / steps
    longest = sorted(counts.items(), key=lambda one: -one[1][1])
    return {
        "launches": round(sum(one[0] for one in counts.values())),
        "us": sum(one[1] for one in counts.values()),
        "kernels": [[name, round(count, 1), round(us, 1)] for name, (count, us) in longest[:top]],
    }


def plain_step(size: Size, run: Callable[[nn.Module], Any], channels_last: bool = True) -> Step:
    """What a PyTorch user writes: fixed inputs, fresh noise, autocast, fused SGD."""
    member = network(size)
    forward, optimizer = run(member), sgd(size, list(member.parameters()))
    data = size.data()
    x, y = data.x[: size.batch].clone(), data.y[: size.batch]
    if channels_last and size.shape[0] > 1:
        x = x.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        noisy = x + SIGMA * torch.randn_like(x)
        with autocast(size):
            loss = cross_entropy(forward(noisy), y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def whole_step(size: Size, run: Callable[[Any], Any]) -> Step:
    """Gather, crop, flip, noise, forward and loss as one compiled function."""
    member, data = network(size), size.data()
    optimizer = sgd(size, list(member.parameters()))
    numbers = torch.randperm(size.images, device=size.device)[: size.batch]
    generator: Any = None  # the default one: compiled code has its own random numbers

    def loss(x: Tensor, y: Tensor, numbers: Tensor) -> Tensor:
        batch = augment(x[numbers], 4, True, generator)
        noisy = (batch + SIGMA * torch.randn_like(batch)).contiguous(memory_format=torch.channels_last)
        return cross_entropy(member(noisy), y[numbers])

    fast = run(loss)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(size):
            found = fast(data.x, data.y, numbers)
        found.backward()
        optimizer.step()

    return step


def our_job(size: Size, objective: Objective | None = None, **more: Any) -> TrainingJob:
    """``ringfence train --compile --graph --precision bf16``, with ``--crop 4 --flip`` on colour images."""
    colour = size.shape[0] > 1
    options: dict[str, Any] = {"crop": 4 if colour else 0, "flip": colour, "compile": True, "graph": True, **more}
    precision = "bf16" if size.cuda else "fp32"
    return TrainingJob(objective or NoiseAugmentation(1), SIGMA, batch=size.batch, precision=precision, **options)  # type: ignore[arg-type]


def our_trainings(
    size: Size, trainings: int, objective: Objective | None = None, **more: Any
) -> list[TrainingInProgress]:
    """Independent trainings, begun and aimed at their first step; of three members each where they are joint."""
    fabric = make_fabric(size.device.type, 1, "bf16" if size.cuda else "fp32")
    fabric.launch()
    data, folder = size.data(), Path(tempfile.mkdtemp())
    found = []
    for number in range(trainings):
        chosen = our_job(size, objective, seed=number, **more)
        members = [
            network(size, 10 * number + i) for i in range(JOINT if chosen.objective.grouping == "together" else 1)
        ]
        with algorithms_tried():
            training = TrainingInProgress(fabric, chosen, members, data, None, folder / str(number))
        training.begin()
        training.aim(0)
        found.append(training)
    return found


def our_step(trainings: Sequence[TrainingInProgress]) -> Step:
    """One step of each, as the training loop takes it: a graph with a branch per training."""
    return steps_of([one.stepper for one in trainings])


class Stacked(nn.Module):
    """Members of one ResNet in one forward: grouped convolutions, (B, M * 3, 32, 32) -> (B, M, 10)."""

    def __init__(self, depth: int, members: int) -> None:
        super().__init__()
        self.members, blocks = members, (depth - 2) // 6
        self.first, self.norm = self._conv(3, 16, 3, 1), nn.BatchNorm2d(16 * members)
        self.blocks = nn.ModuleList()
        before = 16
        for width in (16, 32, 64):
            for number in range(blocks):
                stride = 2 if width != before and number == 0 else 1
                parts = {
                    "conv1": self._conv(before, width, 3, stride),
                    "bn1": nn.BatchNorm2d(width * members),
                    "conv2": self._conv(width, width, 3, 1),
                    "bn2": nn.BatchNorm2d(width * members),
                }
                if stride != 1:
                    parts["conv0"] = self._conv(before, width, 1, stride)
                    parts["bn0"] = nn.BatchNorm2d(width * members)
                self.blocks.append(nn.ModuleDict(parts))
                before = width
        self.weight = nn.Parameter(0.1 * torch.randn(members, 64, 10))
        self.bias = nn.Parameter(torch.zeros(members, 10))

    def _conv(self, before: int, after: int, kernel: int, stride: int) -> nn.Conv2d:
        m = self.members
        return nn.Conv2d(m * before, m * after, kernel, stride, kernel // 2, groups=m, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of every member for its own rows."""
        x = relu(self.norm(self.first(x)))
        for part in self.blocks:
            inner = part["bn2"](part["conv2"](relu(part["bn1"](part["conv1"](x)))))
            x = relu(inner + (part["bn0"](part["conv0"](x)) if "conv0" in part else x))
        features = x.mean((2, 3)).view(len(x), self.members, 64)
        return torch.einsum("bmc,mck->bmk", features, self.weight.to(features.dtype)) + self.bias


def stacked_step(size: Size, run: Callable[[nn.Module], Any], count: int) -> Step:
    """A plain step of members stacked in one forward, each with its own noise."""
    torch.manual_seed(0)
    member = Stacked(size.depth, count).to(size.device).train()
    member.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward, optimizer = run(member), sgd(size, list(member.parameters()))
    data = size.data()
    x, y = data.x[: size.batch].repeat(1, count, 1, 1), data.y[: size.batch].repeat_interleave(count)
    x = x.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        noisy = x + SIGMA * torch.randn_like(x)
        with autocast(size):
            loss = cross_entropy(forward(noisy).flatten(0, 1).float(), y) * count
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step

"""Rates of one network on a GPU: the usual loop over images, the raw forward, and the engine."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers.architectures import resnet
from ringfence.data import Input
from ringfence.procedures import Procedure
from ringfence.sampling import Forward, ForwardPlan

SHAPE, CLASSES, SIGMA, LOOP_BATCH = (3, 32, 32), 10, 0.25, 1000


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def per_image_loop(model: nn.Module, seconds: float, device: str) -> float:
    """Forwards a second of the usual script: one image, batch after batch, counted on the host."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    image, counts = torch.rand(SHAPE, device=device), [0] * CLASSES
    model = copy.deepcopy(model).to(device).eval()
    with torch.no_grad():
        for phase in (min(1.0, seconds), seconds):
            begin, done = time.perf_counter(), 0
            while time.perf_counter() - begin < phase:
                noise = torch.randn(LOOP_BATCH, *SHAPE, device=device) * SIGMA
                for guess in model(image.repeat(LOOP_BATCH, 1, 1, 1) + noise).argmax(1).cpu().numpy():
                    counts[guess] += 1
                done += LOOP_BATCH
    return done / (time.perf_counter() - begin)


def raw_forward(model: nn.Module, plan: ForwardPlan, seconds: float, device: str) -> Callable[[], float]:
    """What measures the forwards a second at the plan's shape, and nothing else."""
    forward = Forward(model, plan, torch.device(device), CLASSES)
    noise, clean = torch.randn(plan.batch, *SHAPE, device=device), torch.rand(1, *SHAPE, device=device)
    batch = forward.merge(noise, clean, torch.zeros(plan.batch, dtype=torch.int64, device=device))
    return lambda: rate(forward, batch, seconds, device)


@torch.inference_mode()
def rate(run: Callable[[Tensor], Any], batch: Tensor, seconds: float, device: str) -> float:
    """Rows a second."""
    for _ in range(3):
        run(batch)
    wait(device)
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        for _ in range(10):
            run(batch)
        wait(device)
        done += 10 * len(batch)
    return done / (time.perf_counter() - begin)


def engine(
    model: nn.Module, plan: ForwardPlan, procedure: Procedure, inputs: int, device: str, **more: Any
) -> tuple[float, float, float]:
    """Network forwards a second of a certification, forwards a draw, and the seconds before the first batch."""
    started: list[float] = []
    execution = rf.Execution(device, plan=plan, on_plan=lambda plan: started.append(time.perf_counter()))
    items = [Input(i, torch.randint(0, 256, SHAPE) / 255, None, str(i)) for i in range(inputs)]
    begin = time.perf_counter()
    found = rf.certify(
        model,
        items,
        procedure=procedure,
        num_classes=CLASSES,
        precision=plan.precision,
        execution=execution,
        **({"noise": rf.Gaussian(SIGMA)} | more),
    )
    first = {record.input_id: record for record in found}  # lanes share their draws
    end = time.perf_counter()
    forwards, draws = sum(one.forwards for one in first.values()), sum(one.draws for one in first.values())
    return forwards / (end - started[0]), forwards / draws, started[0] - begin


def seconds_of(run: Callable[[], object], times: int, device: str) -> float:
    """Seconds of one of so many calls, after three that only warm."""
    for _ in range(3):
        run()
    wait(device)
    begin = time.perf_counter()
    for _ in range(times):
        run()
    wait(device)
    return (time.perf_counter() - begin) / times


def certified(
    model: nn.Module, plan: ForwardPlan, shape: tuple[int, ...], classes: int, inputs: int, batches: int, device: str
) -> float:
    """Draws a second of a certification of so many batches, from its first."""
    items = [Input(i, torch.randint(0, 256, shape) / 255, None, str(i)) for i in range(inputs)]
    begun: list[float] = []
    execution = rf.Execution(device, plan=plan, on_plan=lambda plan: begun.append(time.perf_counter()))
    given: dict[str, Any] = {"num_classes": classes, "precision": plan.precision, "execution": execution}
    for many in (2, batches):  # the first loads kernels
        test = rf.Fixed(n0=100, n=max(100, many * plan.batch // inputs - 100))
        records = list(rf.certify(model, items, noise=rf.Gaussian(SIGMA), procedure=test, **given))
    return sum(one.draws for one in records) / (time.perf_counter() - begun[-1])


def draws_each(rate: float, seconds: float, inputs: int) -> int:
    """Draws per input that take about so many seconds, in whole chunks."""
    return max(100, int(rate * seconds / inputs) // 100 * 100)


def network(depth: int) -> nn.Module:
    """With statistics as after training: fresh ones let the activations grow with the depth."""
    torch.manual_seed(0)
    found = resnet(depth)
    for part in found.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_var is not None
            part.running_var.fill_(2.0)
    return found


def plan_of(form: str, options: argparse.Namespace) -> ForwardPlan:
    """How a form of the network runs on the device that was asked for."""
    if options.device != "cuda":
        return ForwardPlan(options.batch, channels_last=True, fold=True)
    settings = {"channels_last": True, "compile": True, "fold": True}
    return ForwardPlan(options.batch, "bf16", autotune=form == "autotuned", fused=form == "fused", **settings)

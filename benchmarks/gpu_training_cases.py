"""The rows of ``gpu_training.py``: each case is measured in a process of its own, since cuDNN keeps its choices."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from gpu_training_steps import (
    Size,
    Step,
    autocast,
    kernels,
    network,
    our_courses,
    our_plan,
    our_step,
    plain_step,
    recorded,
    stacked_step,
    timed,
    whole_step,
)
from torch._inductor import config as inductor_config
from torch.nn.functional import batch_norm

from ringfence.sampling.compiling import compiled
from ringfence.training.data_on_device import augment
from ringfence.training.loop import train
from ringfence.training.recording import algorithms_tried

Rows = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """What a case is run with; prepare: only fill the compiler's cache."""

    size: Size
    depth: int
    prepare: bool = False
    profile: bool = False


def row(name: str, asked: Asked, ms: float, members: int = 1, **more: Any) -> dict[str, Any]:
    """One line: milliseconds a step, seconds an epoch and member."""
    epoch = ms / 1000 * asked.size.images / asked.size.batch / members
    return {"row": name, "depth": asked.depth, "ms": round(ms, 3), "s_epoch_member": round(epoch, 3), **more}


def measured(name: str, asked: Asked, step: Step, members: int = 1) -> Rows:
    """Time, then if asked the kernels."""
    yield row(name, asked, timed(asked.size, step), members)
    if asked.profile:
        yield {"row": name, "depth": asked.depth, "profile": kernels(asked.size, step)}


def plain(
    asked: Asked, channels_last: bool = True, options: dict[str, Any] | None = None, batch: int | None = None
) -> Rows:
    """Compiled, then one graph of it."""
    for name, value in (options or {}).items():
        setattr(inductor_config, name, value)
    torch.backends.cudnn.benchmark = True
    asked = replace(asked, size=replace(asked.size, batch=batch)) if batch else asked
    step = plain_step(asked.size, asked.depth, compiled, channels_last)
    step()
    if not asked.prepare:
        yield from measured("plain compiled graph", asked, recorded(asked.size, step))


def eager(asked: Asked) -> Rows:
    """Without a compiler, then one graph of it."""
    torch.backends.cudnn.benchmark = True
    step = plain_step(asked.size, asked.depth, lambda member: member)
    yield from measured("plain eager", replace(asked, profile=False), step)
    yield from measured("plain eager graph", asked, recorded(asked.size, step))


def whole(asked: Asked) -> Rows:
    """Augmentation, noise, forward and loss compiled as one."""
    torch.backends.cudnn.benchmark = True
    step = whole_step(asked.size, asked.depth, compiled)
    step()
    if not asked.prepare:
        yield from measured("plain, all before backward compiled as one, graph", asked, recorded(asked.size, step))


def stacked(asked: Asked, members: int = 6) -> Rows:
    """Members as groups of convolutions."""
    torch.backends.cudnn.benchmark = True
    step = stacked_step(asked.size, asked.depth, members, compiled)
    step()
    if not asked.prepare:
        yield from measured(f"{members} stacked by groups", asked, recorded(asked.size, step), members)


def ours(asked: Asked, tried: bool = False, branches: tuple[int, ...] = (), copies: int = 1) -> Rows:
    """Our recorded step, its parts, whole epochs of ``train``, and several members as branches of one graph.

    tried: cuDNN tries its algorithms from the start, not only after the check of the compiled network.
    """
    torch.backends.cudnn.benchmark = tried
    label = ", cuDNN tries first" if tried else ""
    label += f", {copies} copies" if copies > 1 else ""
    courses = our_courses(asked.size, asked.depth, 1, copies=copies)
    if asked.prepare:
        courses[0].stepper.step()
        return
    with algorithms_tried():
        step = our_step(asked.size, courses)
        yield from measured("ours" + label, asked, step)
        place = iter(range(10**9))

        def aimed() -> None:
            courses[0].aim(next(place) % asked.size.steps)
            step()

        yield row("ours, aimed" + label, asked, timed(asked.size, aimed))
        yield from _parts(asked, courses[0].stepper, label)
    for name, plan in (("no crop, no flip", {"crop": 0, "flip": False}), ("no compile", {"compile": False})):
        if not branches or name != "no compile":
            with algorithms_tried():
                other = our_step(asked.size, our_courses(asked.size, asked.depth, 1, copies=copies, **plan))
                yield row(f"ours, {name}{label}", asked, timed(asked.size, other))
    for count in branches:
        with algorithms_tried():
            several = our_courses(asked.size, asked.depth, count, copies=copies)
            yield row(f"ours, {count} branches{label}", asked, timed(asked.size, our_step(asked.size, several)), count)
        del several
    yield from _epochs(asked, copies, label)


def _parts(asked: Asked, stepper: Any, label: str) -> Rows:
    """Pieces of our step as graphs of their own; they do not add up exactly, since launches overlap."""
    size, generator = asked.size, stepper.generator
    numbers = torch.randperm(size.images, device=size.device)[: size.batch]
    x, y = stepper.data.x[numbers].clone(), stepper.data.y[numbers]
    copies = stepper.plan.objective.copies

    def forward() -> Any:
        with autocast(size):
            return stepper.plan.objective(stepper._run, x, y, stepper.noise, generator).total

    def there_and_back() -> None:
        stepper.optimizer.zero_grad(set_to_none=True)
        forward().backward()

    pieces: dict[str, Step] = {
        "gather": lambda: stepper.data.x[numbers],
        "gather, crop and flip": lambda: augment(stepper.data.x[numbers], 4, True, generator),
        "noise": lambda: (x + stepper.noise.draw(x, copies, generator)).flatten(0, 1),
        "forward": forward,
        "forward and backward": there_and_back,
        "optimiser": stepper.optimizer.step,
        "notes": lambda: stepper._note(torch.ones(3, device=size.device)),
    }
    there_and_back()
    for name, piece in pieces.items():
        try:
            yield row(f"part: {name}{label}", asked, timed(size, recorded(size, piece, [generator])))
        except RuntimeError as error:
            yield {"row": f"part: {name}{label}", "depth": asked.depth, "error": str(error)[:200]}
            return


def _epochs(asked: Asked, copies: int, label: str) -> Rows:
    """Seconds from the end of one epoch to the end of the next, checkpoint and all."""
    ends: list[float] = []

    def note(status: Any) -> None:
        if status.step == status.steps:
            ends.append(time.perf_counter())

    epochs = 2 if asked.depth > 56 else 4
    folder = Path(tempfile.mkdtemp())
    members = [network(asked.size, asked.depth)]
    train(
        our_plan(asked.size, copies, epochs=epochs),
        members,
        asked.size.data(),
        folder,
        device=asked.size.device.type,
        on_status=note,
    )
    seconds = [round(b - a, 3) for a, b in pairwise(ends)]
    yield {"row": "ours, epochs of train()" + label, "depth": asked.depth, "s_epoch": seconds}


def layers(asked: Asked) -> Rows:
    """Microseconds of single layers, bf16 and channels last: more rows against groups, the bound of stacking."""
    torch.backends.cudnn.benchmark = True
    size = asked.size
    shapes = [(size.batch, 1), (10 * size.batch, 1), (size.batch, 3), (size.batch, 6), (size.batch, 10)]
    for width, side in ((16, 32), (32, 16), (64, 8)):
        for batch, groups in shapes:
            found = _layer(size, width, side, batch, groups)
            yield {"row": f"layer {width}x{side}x{side}, batch {batch}, groups {groups}", "depth": 0, "us": found}


def _layer(size: Size, width: int, side: int, batch: int, groups: int) -> dict[str, float]:
    kind = torch.bfloat16
    last = torch.channels_last
    channels = width * groups
    x = torch.randn(batch, channels, side, side, device=size.device, dtype=kind).contiguous(memory_format=last)
    weight = torch.randn(channels, width, 3, 3, device=size.device, dtype=kind).contiguous(memory_format=last)
    out = torch.randn_like(x)
    scale, mean = torch.ones(channels, device=size.device), torch.zeros(channels, device=size.device)
    settings: Any = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    backward = torch.ops.aten.convolution_backward
    leaf, weights = x.clone().requires_grad_(), scale.clone().requires_grad_()

    def norm() -> None:
        batch_norm(leaf, mean, scale, weights, None, True).backward(out)  # type: ignore[no-untyped-call]

    pieces: dict[str, Step] = {
        "forward": lambda: torch.ops.aten.convolution(x, weight, None, *settings),
        "input gradient": lambda: backward(out, x, weight, None, *settings, [True, False, False]),
        "weight gradient": lambda: backward(out, x, weight, None, *settings, [False, True, False]),
        "batch norm and back": norm,
        "copy": lambda: out.copy_(x),
    }

    def ten_times(piece: Step) -> Step:
        def run() -> None:
            for _ in range(10):
                piece()

        return run

    small = replace(size, repeats=3)
    return {name: round(100 * timed(small, recorded(size, ten_times(one))), 1) for name, one in pieces.items()}


@dataclass(frozen=True)
class Case:
    """A name on the command line; compiles: cases with equal entries share their compiled code, None: nothing to."""

    run: Callable[[Asked], Rows]
    depth: int
    compiles: str | None = None


def _ours(**more: Any) -> Callable[[Asked], Rows]:
    return lambda asked: ours(asked, **more)


def _plain(**more: Any) -> Callable[[Asked], Rows]:
    return lambda asked: plain(asked, **more)


CASES: dict[str, Case] = {
    "plain110": Case(plain, 110, "plain110"),
    "ours110": Case(ours, 110, "ours110"),
    "tried110": Case(_ours(tried=True, branches=(3, 6)), 110, "ours110"),
    "eager110": Case(eager, 110),
    "plain20": Case(plain, 20, "plain20"),
    "ours20": Case(ours, 20, "ours20"),
    "tried20": Case(_ours(tried=True, branches=(3, 6, 10)), 20, "ours20"),
    "layers": Case(layers, 0),
    "whole20": Case(whole, 20, "whole20"),
    "stacked20": Case(stacked, 20, "stacked20"),
    "contiguous20": Case(_plain(channels_last=False), 20, "contiguous20"),
    "combo20": Case(_plain(options={"combo_kernels": True}), 20, "combo20"),
    "layout20": Case(_plain(options={"force_layout_optimization": True}), 20, "layout20"),
    "eager20": Case(eager, 20),
    "copies20": Case(_ours(tried=True, copies=2), 20, "copies20"),
    "wide20": Case(_plain(batch=2560), 20, "wide20"),
    "wide110": Case(_plain(batch=2560), 110, "wide110"),
}
"""Ordered by what is learnt per second."""

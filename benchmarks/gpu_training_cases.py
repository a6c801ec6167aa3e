"""The rows of ``gpu_training.py``: each case is measured in a process of its own, since cuDNN keeps its choices."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from gpu_training_attacks import attacks
from gpu_training_layers import layers
from gpu_training_steps import (
    JOINT,
    Size,
    Step,
    autocast,
    kernels,
    network,
    our_job,
    our_step,
    our_trainings,
    plain_step,
    recorded,
    stacked_step,
    timed,
    whole_step,
)
from torch import nn
from torch._inductor import config as inductor_config

from ringfence.classifiers.architectures.resnet import Block
from ringfence.sampling.preparing import compiled
from ringfence.training.compared import algorithms_tried
from ringfence.training.data import augment
from ringfence.training.loop import train
from ringfence.training.objectives import NoiseAugmentation, Objective, build_objective

Rows = Iterator[dict[str, Any]]

NETWORKS = {"resnet110": 50_000, "resnet20": 50_000, "lenet": 60_000}
"""Images of an epoch, by network."""

OBJECTIVES = ("gaussian", "consistency", "stability", "macer", "smoothmix", "smoothadv", "catrs", "reweight")
OBJECTIVES += ("drt", "adp", "gal", "select")
"""Those of classifiers. Denoisers are other networks."""

PYTORCH = "PyTorch"
OURS = "ours"


@dataclass(frozen=True)
class Asked:
    """What a case is run with; prepare: only fill the compiler's cache; beside: instead of a case's own numbers of
    trainings side by side; brief: neither pieces of a step nor whole epochs."""

    size: Size
    prepare: bool = False
    profile: bool = False
    beside: tuple[int, ...] | None = None
    brief: bool = False


def row(name: str, asked: Asked, ms: float, members: int = 1, **more: Any) -> dict[str, Any]:
    """One line: milliseconds a step, seconds an epoch and member."""
    size = asked.size
    epoch = ms / 1000 * size.images / size.batch / members
    found = {"row": name, "network": size.arch, "batch": size.batch, "members": members, "ms": round(ms, 3)}
    return {**found, "s_epoch_member": round(epoch, 3), "objective": "gaussian, m = 1", **more}


def measured(name: str, asked: Asked, step: Step, members: int = 1, **more: Any) -> Rows:
    """Time, then if asked the kernels."""
    yield row(name, asked, timed(asked.size, step), members, **more)
    if asked.profile:
        yield {"row": name, "network": asked.size.arch, "profile": kernels(asked.size, step)}


def plain(asked: Asked) -> Rows:
    """As a PyTorch user has it: eager, compiled, and each as one graph."""
    torch.backends.cudnn.benchmark = True
    ways: dict[str, Callable[[nn.Module], Any]] = {"eager": lambda member: member, "compiled": compiled}
    for way, run in ways.items():
        if asked.prepare and way == "eager":
            continue
        begin = time.perf_counter()
        step = plain_step(asked.size, run)
        step()
        seconds = round(time.perf_counter() - begin, 1)
        if not asked.prepare:
            yield row(f"{PYTORCH}, {way}", asked, timed(asked.size, step), first_step_s=seconds)
            yield from measured(f"{PYTORCH}, {way}, one graph", asked, recorded(asked.size, step))


def variant(
    asked: Asked,
    label: str,
    make: Callable[..., Step] = plain_step,
    run: Callable[[Any], Any] = compiled,
    options: dict[str, Any] | None = None,
    batch: int | None = None,
    members: int = 1,
    **more: Any,
) -> Rows:
    """A compiled step of another form, as one graph: what might be faster."""
    for name, value in (options or {}).items():
        setattr(inductor_config, name, value)
    torch.backends.cudnn.benchmark = True
    asked = replace(asked, size=replace(asked.size, batch=batch)) if batch else asked
    begin = time.perf_counter()
    step = make(asked.size, run=run, **more)
    step()
    seconds = round(time.perf_counter() - begin, 1)
    if not asked.prepare:
        whole = recorded(asked.size, step)
        yield from measured(f"{PYTORCH}, {label}, one graph", asked, whole, members, first_step_s=seconds)


def by_blocks(member: nn.Module) -> nn.Module:
    """Every residual block compiled by itself: blocks of one kind share their code, of which there are five."""
    for part in member.modules():
        if isinstance(part, Block):
            part.compile(dynamic=False)
    return member


def objective_of(name: str) -> Objective:
    """As the command line's defaults have it; Gaussian with one copy, as the published recipes."""
    return NoiseAugmentation(1) if name == "gaussian" else build_objective(name, {})


def ours(
    asked: Asked,
    name: str,
    beside: tuple[int, ...] = (3,),
    whole: bool = False,
    fused: bool = False,
    compiled: bool = True,
) -> Rows:
    """Our recorded step of an objective: alone and with others side by side; whole: its parts, and epochs of ``train``.

    A joint objective has three members in one training. fused: attacks by the kernels, where there is CUDA.
    """
    objective = objective_of(name)
    each = JOINT if objective.grouping == "together" else 1
    form = f"{', fused attacks' if fused else ''}{'' if compiled else ', uncompiled'}"
    told = {"objective": f"{name}, m = {objective.copies}{form}"}
    more = {"fused": fused and asked.size.cuda, "compile": compiled}
    yield from _alone(asked, objective, each, told, whole, more)
    if asked.prepare:
        return
    for count in beside if asked.beside is None else asked.beside:
        with algorithms_tried():
            several = our_trainings(asked.size, count, objective, **more)
            found = timed(asked.size, our_step(several))
        yield row(f"{OURS}, {count} side by side", asked, found, count * each, **told)
        del several
    if whole and not asked.brief:
        yield from _epochs(asked, told)


def _alone(
    asked: Asked, objective: Objective, each: int, told: dict[str, Any], whole: bool, more: dict[str, Any]
) -> Rows:
    begin = time.perf_counter()
    trainings = our_trainings(asked.size, 1, objective, **more)
    if asked.prepare:
        trainings[0].stepper.step()
        return
    with algorithms_tried():
        step = our_step(trainings)
        seconds = round(time.perf_counter() - begin, 1)
        yield from measured(f"{OURS}, alone", asked, step, each, first_step_s=seconds, **told)
        if not whole:
            return
        place = iter(range(10**9))

        def aimed() -> None:
            trainings[0].aim(next(place) % asked.size.steps)
            step()

        yield row(f"{OURS}, aimed", asked, timed(asked.size, aimed), each, **told)
        if not asked.brief:
            yield from _parts(asked, trainings[0].stepper)


def _parts(asked: Asked, stepper: Any) -> Rows:
    """Pieces of our step as graphs of their own; they do not add up exactly, since launches overlap."""
    size, generator = asked.size, stepper.generator
    numbers = torch.randperm(size.images, device=size.device)[: size.batch]
    batch = stepper.data.batch(numbers)
    copies = stepper.job.objective.copies

    def forward() -> Any:
        with autocast(size):
            return stepper.job.objective(stepper._run, batch, stepper.noise, generator).total

    def there_and_back() -> None:
        stepper.optimizer.zero_grad(set_to_none=True)
        forward().backward()

    pieces: dict[str, Step] = {
        "gather": lambda: stepper.data.x[numbers],
        "gather, crop and flip": lambda: augment(stepper.data.x[numbers], 4, True, generator),
        "noise": lambda: batch.under(stepper.noise.draw(batch, copies, generator)),
        "forward": forward,
        "forward and backward": there_and_back,
        "optimiser": stepper.optimizer.step,
        "notes": lambda: stepper._note(torch.ones(3, device=size.device)),
    }
    there_and_back()
    for name, piece in pieces.items():
        try:
            yield row(f"part: {name}", asked, timed(size, recorded(size, piece, [generator])))
        except RuntimeError as error:
            yield {"row": f"part: {name}", "network": size.arch, "error": str(error)[:200]}
            return


def _epochs(asked: Asked, told: dict[str, Any]) -> Rows:
    """Seconds from the end of one epoch to the end of the next, checkpoint and all."""
    ends: list[float] = []

    def note(status: Any) -> None:
        if status.step == status.steps:
            ends.append(time.perf_counter())

    size, folder = asked.size, Path(tempfile.mkdtemp())
    job, data = our_job(size, epochs=4), size.data()
    train(job, [network(size)], data, folder, device=size.device.type, on_status=note)
    seconds = [round(b - a, 3) for a, b in pairwise(ends)]
    yield {"row": f"{OURS}, epochs of train()", "network": size.arch, "s_epoch": seconds, **told}


def bf16_rate(asked: Asked) -> Rows:
    """TFLOP/s of a large dense product: what every row is a share of."""
    if asked.prepare:
        return
    size = asked.size
    side = 8192 if size.cuda else 256
    left, right = (torch.randn(side, side, device=size.device, dtype=torch.bfloat16) for _ in range(2))
    ms = timed(size, lambda: left @ right)
    yield {"row": "dense bf16 product", "network": "", "ms": round(ms, 4), "tflops": round(2 * side**3 / ms / 1e9, 1)}


@dataclass(frozen=True)
class Case:
    """A name on the command line; compiles: whether there is something to compile beforehand."""

    run: Callable[[Asked], Rows]
    arch: str
    compiles: bool = True


def _cases() -> dict[str, Case]:
    found = {"rate": Case(bf16_rate, "resnet20", False), "layers": Case(lambda asked: layers(asked.size), "", False)}
    for arch in NETWORKS:
        many = (3, 10) if arch != "resnet110" else (3, 6, 10)
        found[f"plain-{arch}"] = Case(plain, arch)
        found[f"gaussian-{arch}"] = Case(partial(ours, name="gaussian", beside=many, whole=True), arch)
    for arch in ("resnet110", "resnet20"):
        found[f"attacks-{arch}"] = Case(lambda asked: attacks(asked.size, asked.prepare), arch)
        for name in ("smoothadv", "smoothmix", "catrs", "reweight"):
            found[f"{name}-fused-{arch}"] = Case(partial(ours, name=name, fused=True), arch)
        found[f"blocks-{arch}"] = Case(partial(variant, label="compiled by blocks", run=by_blocks), arch)
    for arch in ("resnet20", "lenet", "resnet110"):
        for name in OBJECTIVES[1:]:
            many = (3, 10) if (name, arch) == ("consistency", "resnet110") else (3,)
            slow = arch == "resnet110" and name in ("drt", "gal")  # not compiled in nine minutes
            found[f"{name}-{arch}"] = Case(partial(ours, name=name, beside=many, compiled=not slow), arch, not slow)
    forms: dict[str, dict[str, Any]] = {
        "whole": {"label": "all before backward compiled as one", "make": whole_step},
        "stacked": {"label": "6 stacked by groups", "make": stacked_step, "members": 6, "count": 6},
        "contiguous": {"label": "compiled, channels first", "channels_last": False},
        "combo": {"label": "compiled, combo kernels", "options": {"combo_kernels": True}},
        "layout": {"label": "compiled, layouts forced", "options": {"force_layout_optimization": True}},
        "wide": {"label": "compiled, batch 2560", "batch": 2560},
    }
    for name, more in forms.items():
        found[f"{name}-resnet20"] = Case(partial(variant, **more), "resnet20")
    found["wide-resnet110"] = Case(partial(variant, **forms["wide"]), "resnet110")
    return found


CASES = _cases()
"""Ordered by what is learnt per second."""


def missing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Cases without a row: plain PyTorch and every objective on every network, attacks by kernels where they can be."""
    done, found = {one["case"] for one in rows}, ["rate"]
    for arch in ("resnet20", "lenet", "resnet110"):
        fused = {name: f"{name}-fused-{arch}" for name in OBJECTIVES}
        wanted = [f"plain-{arch}", *(fused[name] if fused[name] in CASES else f"{name}-{arch}" for name in OBJECTIVES)]
        found += [one for one in wanted if one not in done]
    return found

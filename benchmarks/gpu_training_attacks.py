"""Attacks of a training, as ``gpu_training.py`` times them: ten PGD steps through two draws, by kernels or autograd."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpu_training_steps import SIGMA, Size, autocast, network, recorded, timed
from torch import Tensor, nn

from ringfence.attacks import Pgd, smoothed_loss
from ringfence.classifiers.fused.gradient import fused_gradients
from ringfence.sampling.preparing import compiled

STEPS, COPIES, EPS = 10, 2, 0.5
Scores = Callable[[Tensor], Tensor]


def attacks(size: Size, prepare: bool) -> Iterator[dict[str, Any]]:
    """Seconds for an epoch's images of each way to take gradients, as one graph, and how far the loss is raised."""
    torch.backends.cudnn.benchmark = True
    plain = network(size).to(size.device).eval().requires_grad_(False)
    x, y, noise = _inputs(size)
    for part in plain.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None  # norms that have seen such images
    with torch.no_grad():
        plain.train()(x + noise[0])
        plain.eval()

    def half(scores: Any) -> Scores:
        def called(x: Tensor) -> Tensor:
            with autocast(size):
                found: Tensor = scores(x)
                return found.float()

        return called

    ways: dict[str, Callable[[], Scores]] = {}
    form = fused_gradients(plain, x)
    if isinstance(form, str):
        yield {"row": "gradients fused", "network": size.arch, "objective": "pgd", "error": form}
    else:
        ways["fused"] = form.now  # weights are folded and packed for every attack
    fast, slow = half(compiled(plain)), half(plain)
    ways |= {"compiled": lambda: fast, "eager": lambda: slow}
    for way, scores in ways.items():
        if prepare and way != "compiled":
            continue
        begin, kept = time.perf_counter(), dict[str, Tensor]()

        def attack(scores: Callable[[], Scores] = scores, kept: dict[str, Tensor] = kept) -> None:
            kept["x"] = Pgd(EPS, STEPS)(scores(), x, y, noise)

        attack()
        if prepare:
            return
        first = round(time.perf_counter() - begin, 1)
        ms = timed(size, recorded(size, attack))
        with torch.no_grad():
            losses = [float(smoothed_loss(plain, at, y, noise).mean()) for at in (x, kept["x"])]
        passes = STEPS * COPIES * size.batch
        yield {
            "row": f"gradients {way}",
            "network": size.arch,
            "batch": size.batch,
            "ms": round(ms, 3),
            "s_images": round(ms / 1000 * size.images / size.batch, 3),
            "objective": f"pgd, {STEPS} steps, m = {COPIES}",
            "passes_a_second": round(passes / ms * 1000),
            "loss_before_and_after": [round(one, 4) for one in losses],
            "first_step_s": first,
        }


def _inputs(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(size.device).manual_seed(0)
    x = torch.rand(size.batch, *size.shape, generator=generator, device=size.device)
    y = torch.randint(0, 10, (size.batch,), generator=generator, device=size.device)
    noise = torch.randn(COPIES, *x.shape, generator=generator, device=size.device)
    return x, y, SIGMA * noise

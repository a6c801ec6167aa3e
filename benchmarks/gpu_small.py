"""Small convolutional networks on a GPU, their first layers one kernel or as torch compiles them: for gpu_limits.py.

Forwards and certified draws a second of the wide LeNet of MNIST tables, alone and three voting, in turns with the same
network as torch compiles it, which each form is compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ringfence as rf
from ringfence.classifiers import SoftVote
from ringfence.classifiers.architectures import wide_lenet
from ringfence.data import Input
from ringfence.sampling import Forward, ForwardPlan

BATCH, SHAPE, CLASSES, INPUTS, BATCHES = 65_536, (1, 28, 28), 10, 16, 200
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "wide LeNet": wide_lenet,
    "three wide LeNets, soft vote": lambda: SoftVote([wide_lenet() for _ in range(3)]),
}
FORMS = {"compiled": False, "first layers one kernel": True}


def small_networks(device: str, quick: bool, timed: Callable[[Callable[[], object], int], float]) -> dict[str, Any]:
    """Rates by network and form, and how far scores are off float32's, beside the plain network's in bf16."""
    rows, found, where = (64 if quick else BATCH), list[dict[str, Any]](), torch.device(device)
    for name, make in NETWORKS.items():
        torch.manual_seed(0)
        model, x = make().eval(), torch.randn(rows, *SHAPE, device=device)
        sample = x[:64].contiguous()
        exact, plain = (
            Forward(model, ForwardPlan(len(sample), kind), where, CLASSES)(sample).scores for kind in ("fp32", "bf16")
        )
        for form, exchanged in FORMS.items():
            how = {"channels_last": True, "fold": True, "compile": not quick, "joined": True}
            plan = ForwardPlan(rows, "bf16", exchanged=exchanged and not quick, **how)  # type: ignore[arg-type]
            run, ready = Forward(model, plan, where, CLASSES), x.bfloat16()
            scores = run(ready).scores[: len(sample)]
            off = [float((one - exact).norm() / exact.norm()) for one in (scores, plain)]
            rate = rows / timed(lambda run=run, ready=ready: run(ready), 2 if quick else 40)  # type: ignore[misc]
            draws = certified(model, plan, device, 2 if quick else BATCHES, 1 if quick else INPUTS)
            row = {"network": name, "form": form, "rate": rate, "certified": draws}
            found.append({**row, "off": off[0], "off_plain": off[1]})
    return {"batch": rows, "rows": found}


def certified(model: nn.Module, plan: ForwardPlan, device: str, batches: int, inputs: int) -> float:
    """Draws a second of a certification, from its first batch."""
    items = [Input(i, torch.randint(0, 256, SHAPE) / 255, None, str(i)) for i in range(inputs)]
    begun: list[float] = []
    execution = rf.Execution(device, plan=plan, on_plan=lambda plan: begun.append(time.perf_counter()))
    given: dict[str, Any] = {"num_classes": CLASSES, "precision": "bf16", "execution": execution}
    for many in (2, batches):  # the first loads kernels
        test = rf.Fixed(n0=100, n=max(100, many * plan.batch // inputs - 100))
        records = list(rf.certify(model, items, noise=rf.Gaussian(0.25), procedure=test, **given))
    return sum(one.draws for one in records) / (time.perf_counter() - begun[-1])

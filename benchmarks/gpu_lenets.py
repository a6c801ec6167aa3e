"""Small convolutional networks on a GPU, their first layers one kernel or as torch compiles them: for gpu_limits.py.

Forwards and certified draws a second of the wide LeNet of MNIST tables, alone and three voting, in turns with the same
network as torch compiles it, which each form is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpu_rates import certified, seconds_of
from torch import nn

from ringfence.classifiers import SoftVote
from ringfence.classifiers.architectures import wide_lenet
from ringfence.sampling import Forward, ForwardPlan

BATCH, SHAPE, CLASSES, INPUTS, BATCHES = 65_536, (1, 28, 28), 10, 16, 200
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "wide LeNet": wide_lenet,
    "three wide LeNets, soft vote": lambda: SoftVote([wide_lenet() for _ in range(3)]),
}
FORMS = {"compiled": False, "first layers one kernel": True}


def small_networks(device: str, quick: bool) -> dict[str, Any]:
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
            how = {"compile": not quick, "exchanged": exchanged and not quick}
            plan = ForwardPlan(rows, "bf16", channels_last=True, fold=True, joined=True, **how)
            run, ready = Forward(model, plan, where, CLASSES), x.bfloat16()
            scores = run(ready).scores[: len(sample)]
            off = [float((one - exact).norm() / exact.norm()) for one in (scores, plain)]
            seconds = seconds_of(lambda run=run, ready=ready: run(ready), 2 if quick else 40, device)  # type: ignore[misc]
            draws = certified(model, plan, SHAPE, CLASSES, *((1, 2) if quick else (INPUTS, BATCHES)), device)
            row = {"network": name, "form": form, "rate": rows / seconds, "certified": draws}
            found.append({**row, "off": off[0], "off_plain": off[1]})
    return {"batch": rows, "rows": found}

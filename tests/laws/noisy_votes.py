"""Small pictures under noise, what classifiers vote on them, and modules that do more than their class says."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.sampling import ForwardPlan

CPU = torch.device("cpu")
SHAPE = (3, 6, 6)
SIGMA = 0.25
INPUTS = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(1))


def noisy(rows: int) -> Tensor:
    noise = torch.randn(rows, *SHAPE, generator=torch.Generator().manual_seed(2))
    return INPUTS[torch.arange(rows) % len(INPUTS)] + SIGMA * noise


def votes(classifier: nn.Module, plan: ForwardPlan, n: int = 200) -> list[list[int]]:
    """Class counts of every input."""
    found = rf.certify(
        classifier,
        INPUTS,
        noise=rf.Gaussian(SIGMA),
        procedure=rf.Fixed(n0=10, n=n),
        precision=plan.precision,
        execution=rf.Execution(device="cpu", plan=plan),
    )
    records = sorted(found, key=lambda record: record.input_id)
    assert all(record.sound for record in records)
    return [record.stages[-1].cells["votes"].tolist() for record in records]


def hooked(module: nn.Module, path: str, before: bool = False) -> nn.Module:
    part = module.get_submodule(path)
    if before:
        part.register_forward_pre_hook(lambda _, args: (3 - 2 * args[0],))
    else:
        part.register_forward_hook(lambda _, args, out: -out)
    return module


def replaced(module: nn.Module) -> nn.Module:
    """An object with a ``forward`` of its own."""
    ordinary = module.forward
    module.forward = lambda x: -ordinary(x)
    return module

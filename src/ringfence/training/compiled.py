"""Compiled networks for training, and the check that they still have the gradients of the plain ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ringfence.errors import ArgumentError
from ringfence.sampling.forward import allow_specialisations
from ringfence.training.checkpoints import undone

LARGEST_DRIFT = 0.2
"""Share of a gradient's length by which a compiled network's may differ: rounding (bf16) stays far below it."""


def compile_members(members: Sequence[nn.Module], x: Tensor, fabric: Any) -> list[nn.Module]:
    """Every member compiled, checked at the inputs x (B, *shape)."""
    allow_specialisations()
    compiled: list[Any] = [torch.compile(one, dynamic=False) for one in members]
    for plain, fast in zip(members, compiled, strict=True):
        drift = gradient_drift(plain, fast, x, fabric)
        if drift > LARGEST_DRIFT:
            rule = "a compiled network must have the gradients of the plain one"
            remedy = f"Leave --compile out: torch {torch.__version__} miscompiles this network here."
            raise ArgumentError("--compile", rule, f"a gradient that is {drift:.0%} off", remedy)
    return compiled


def gradient_drift(plain: nn.Module, fast: nn.Module, x: Tensor, fabric: Any) -> float:
    """Largest difference of a parameter's gradient between the two, as a share of its length.

    Compilers err: torch 2.13 drops the gradients of LeNet's convolutions on a CPU, and training would go on
    without them. Gradients shorter than a thousandth of the longest count as that long.
    """
    parameters = [one for one in plain.parameters() if one.requires_grad]
    found: list[list[Tensor]] = []
    with undone([plain]):  # batch norms count batches
        for run in (plain, fast):
            with fabric.autocast():
                answers: Tensor = run(x).float()
            mixed = torch.linspace(-1, 1, answers[0].numel(), device=x.device).view_as(answers[0])
            wanted = torch.autograd.grad((answers * mixed).sum(), parameters, allow_unused=True, materialize_grads=True)
            found.append([one.float() for one in wanted])
    lengths = torch.stack([one.norm() for one in found[0]])
    drifts = torch.stack([(one - other).norm() for one, other in zip(*found, strict=True)])
    return float((drifts / lengths.clamp_min(float(lengths.max()) / 1000 + 1e-12)).max())

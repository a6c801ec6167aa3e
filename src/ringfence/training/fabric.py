"""How networks run in training: Lightning Fabric, and compiled networks, checked to have the plain ones' gradients."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ringfence.classifiers.fused.gradient import FusedGradients, fused_gradients
from ringfence.errors import ArgumentError
from ringfence.sampling import pick_device
from ringfence.sampling.preparing import compiled
from ringfence.training.compared import check_gradients
from ringfence.training.narrow import narrow_options
from ringfence.training.objectives.base import Attackable


def make_fabric(device: str, devices: int, precision: str) -> Any:
    """A Fabric on one device, or on several with one process each."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        try:
            from lightning.fabric import Fabric  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ImportError:
            remedy = "Install it: pip install 'ringfence[train]'."
            raise ArgumentError("train", "needs Lightning Fabric", "it is not installed", remedy) from None
    if devices < 1:
        raise ArgumentError("devices", "must be at least 1", devices, "Use 1.")
    place = pick_device(device)
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    where: Any = [place.index] if place.type == "cuda" and place.index is not None and devices == 1 else devices
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks about idle devices and worker counts
        return Fabric(
            accelerator="cuda" if place.type == "cuda" else "cpu",
            devices=where,
            strategy="ddp_spawn" if devices > 1 else "auto",
            precision="bf16-mixed" if precision == "bf16" else "32-true",
        )


def average_gradients(fabric: Any, parameters: list[torch.nn.Parameter]) -> None:
    """Mean of the gradients over all processes, in one message.

    Done by hand after backward: the hooks of DistributedDataParallel see one forward and one first-order
    backward, while the objectives here attack, run several members and differentiate gradients.
    """
    gradients = [one.grad for one in parameters if one.grad is not None]
    flat = fabric.all_reduce(torch.cat([one.flatten() for one in gradients]), reduce_op="mean")
    for gradient, mean in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def compile_members(members: Sequence[nn.Module], x: Tensor, fabric: Any, recorded: bool = False) -> list[nn.Module]:
    """Every member compiled, checked at the inputs x (B, *shape); recorded: launches cost nothing, nor do operators."""
    options = narrow_options() if recorded else None
    found: list[Any] = [compiled(one, options=options) for one in members]
    for plain, fast in zip(members, found, strict=True):
        with fabric.autocast():
            check_gradients(plain, plain, fast, x)
    return found


def attackable(members: Sequence[nn.Module], run: Sequence[nn.Module], x: Tensor) -> list[nn.Module]:
    """What is run, with kernels where attacks take gradients in images, checked at the inputs x (B, *shape)."""
    found = [fused_gradients(one, x) for one in members]
    if problems := [one for one in found if isinstance(one, str)]:
        rule = "needs CIFAR ResNets, a GPU of compute capability 8.0 or later, and CuPy"
        raise ArgumentError("fused", rule, problems[0], "Leave it out: attacks then use autograd.")
    return [Attackable(one, form) for one, form in zip(run, found, strict=True) if isinstance(form, FusedGradients)]

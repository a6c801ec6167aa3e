"""Lightning Fabric, from whichever of its two packages is installed."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch

from ringfence.errors import ArgumentError
from ringfence.sampling import pick_device


def make_fabric(device: str, devices: int, precision: str) -> Any:
    """A Fabric on one device, or on several with one process each."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        try:
            from lightning.fabric import Fabric  # type: ignore[import-not-found,no-redef,unused-ignore]
        except ImportError:
            remedy = "Install it: pip install 'ringfence[train]'."
            raise ArgumentError("train", "needs Lightning Fabric", "neither package", remedy) from None
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

"""Whether a batch the user asked for fits at all, before anything is allocated."""

from __future__ import annotations

import math
import os

import torch

from ringfence.errors import ArgumentError

COPIES = 4
"""Float32 copies of a batch that exist at once at the least: noise, noisy inputs, their cast, a layer's outputs."""


def check_batch(batch: int | None, shape: tuple[int, ...], device: torch.device) -> None:
    """Refuse a batch of inputs (*shape) that the device's memory cannot hold: asking for it would end the process."""
    row = 4 * COPIES * math.prod(shape)
    most = max(1, device_memory(device) // row)
    if batch is not None and batch > most:
        rule = f"must fit into memory: at most {most:,} rows of shape {tuple(shape)} on {device}"
        raise ArgumentError("--batch", rule, f"{batch:,}", "Use auto, which measures the fastest.")


def device_memory(device: torch.device) -> int:
    """Bytes that the device has in all."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[1])
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 2**63

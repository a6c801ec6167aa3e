"""What the kernels of a training step are for, told by their names: profiles of ``gpu_training.py`` as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from common import Grid

KINDS: Mapping[str, tuple[str, ...]] = {
    "ours, convolved": ("_convolve", "narrow_forward", "narrow_back"),
    "ours, to weights": ("_to_weight", "_sum", "narrow_weight", "narrow_sum"),
    "cuDNN, to weights": ("wgrad", "ImplicitGemmConvolution", "split_k", "init_device_workspace"),
    "cuDNN, to inputs": ("dgrad",),
    "cuDNN, forward": ("fprop", "convolve_common_engine"),
    "copies and memory": ("copy", "Memcpy", "Memset", "memset", "nchwToNhwc", "nhwcToNchw", "AddPadding", "Fill"),
    "sums of batch norms": ("triton_red", "triton_per", "batch_norm_collect", "batch_norm_backward_reduce"),
    "point by point": ("triton_poi", "elementwise", "batch_norm"),
}
"""Kinds of kernels by parts of their names; the first kind that fits counts. Ours begin with theirs."""
COMPILED = "triton_"


def kind_of(name: str) -> str:
    """What a kernel is for; empty: none of the kinds. Compiled ones may be named after what they include."""
    for kind, parts in KINDS.items():
        if kind.startswith("ours"):
            fits = name.startswith(parts)
        elif name.startswith(COMPILED):
            fits = any(part.startswith(COMPILED) and name.startswith(part) for part in parts)
        else:
            fits = any(part in name for part in parts)
        if fits:
            return kind
    return ""


def kinds_grid(rows: Sequence[dict[str, Any]]) -> Grid:
    """Milliseconds of every profiled step by kind; kernels that overlap count each, so that all may exceed the step."""
    objectives = {(one["case"], one["row"]): one["objective"] for one in rows if "s_epoch_member" in one}
    lines = []
    for one in rows:
        if "profile" not in one or not one["profile"]["us"]:
            continue
        found = dict.fromkeys((*KINDS, ""), 0.0)
        for name, _, us in one["profile"]["kernels"]:
            found[kind_of(name)] += us
        found[""] += one["profile"]["us"] - sum(found.values())  # short ones, which the profile does not list
        numbers = [f"{us / 1000:.2f}" for us in (*found.values(), one["profile"]["us"])]
        told = objectives.get((one["case"], one["row"]), one["case"])
        lines.append([f"{one['network']}, {told}: {one['row']}", *numbers])
    return Grid("Kernels of a step by kind, ms", ["step", *KINDS, "others", "all"], lines)

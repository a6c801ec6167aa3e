"""Single layers of the networks that ``gpu_training.py`` trains: what stacking members in one launch could reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from gpu_training_steps import Size, Step, recorded, timed
from torch import Tensor
from torch.nn.functional import batch_norm

from ringfence.noise.checked import checked_kernel
from ringfence.training.narrow import KERNEL, SIDES


def layers(size: Size) -> Iterator[dict[str, Any]]:
    """Microseconds of single layers, bf16 and channels last: more rows against groups, the bound of stacking."""
    torch.backends.cudnn.benchmark = True
    shapes = [(size.batch, 1), (10 * size.batch, 1), (size.batch, 3), (size.batch, 6), (size.batch, 10)]
    for width, side in ((16, 32), (32, 16), (64, 8)):
        for batch, groups in shapes:
            name = f"layer {width}x{side}x{side}, batch {batch}"
            yield {"row": f"{name}, groups {groups}", "network": "", "us": _layer(size, width, side, batch, groups)}
        kernel = checked_kernel(KERNEL, size.device) if width in SIDES else None
        for batch in (size.batch, 2 * size.batch) if kernel else ():
            yield {
                "row": f"layer {width}x{side}x{side}, batch {batch}, ours",
                "network": "",
                "us": _ours(size, width, side, batch, kernel),
            }


def _ours(size: Size, width: int, side: int, batch: int, kernel: Any) -> dict[str, float]:
    x, out = (_drawn(size, batch, width, side, side) for _ in range(2))
    weight = _drawn(size, width, width, 3, 3)
    pieces: dict[str, Step] = {
        "forward": lambda: kernel.convolved(x, weight),
        "input gradient": lambda: kernel.convolved(out, weight, back=True),
        "weight gradient": lambda: kernel.to_weight(x, out),
    }
    return _timed(size, pieces)


def _drawn(size: Size, *shape: int) -> Tensor:
    found = torch.randn(*shape, device=size.device, dtype=torch.bfloat16)
    return found.contiguous(memory_format=torch.channels_last)


def _layer(size: Size, width: int, side: int, batch: int, groups: int) -> dict[str, float]:
    channels = width * groups
    x, weight = _drawn(size, batch, channels, side, side), _drawn(size, channels, width, 3, 3)
    out = torch.randn_like(x)
    scale, mean = torch.ones(channels, device=size.device), torch.zeros(channels, device=size.device)
    settings: Any = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    backward = torch.ops.aten.convolution_backward
    leaf, weights = x.clone().requires_grad_(), scale.clone().requires_grad_()

    def norm() -> None:
        batch_norm(leaf, mean, scale, weights, None, True).backward(out)  # type: ignore[no-untyped-call]

    pieces: dict[str, Step] = {
        "forward": lambda: torch.ops.aten.convolution(x, weight, None, *settings),
        "input gradient": lambda: backward(out, x, weight, None, *settings, [True, False, False]),
        "weight gradient": lambda: backward(out, x, weight, None, *settings, [False, True, False]),
        "batch norm and back": norm,
        "copy": lambda: out.copy_(x),
    }

    return _timed(size, pieces)


def _timed(size: Size, pieces: dict[str, Step]) -> dict[str, float]:
    """Microseconds of each, ten in a graph."""

    def ten_times(piece: Step) -> Step:
        def run() -> None:
            for _ in range(10):
                piece()

        return run

    small = replace(size, repeats=3)
    return {name: round(100 * timed(small, recorded(size, ten_times(one))), 1) for name, one in pieces.items()}

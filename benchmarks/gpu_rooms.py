"""The fused ResNet kernel in its forms for GPUs with less shared memory: rows a second, and whether they agree.

    python benchmarks/gpu_rooms.py [--depths 20,110]

A form for less shared memory than the device has runs there with what it would have elsewhere, one block on a
multiprocessor (its registers leave no room for a second). What another GPU does with it only that GPU can show.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from common import Bar, Grid, Report, finish, interleaved, median_ratio, options_parser
from gpu_rates import CLASSES, SHAPE, network, rate
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ringfence.classifiers import fused
from ringfence.sampling import Forward, ForwardPlan


def in_room(forward: Forward, room: int, x: Tensor) -> Tensor:
    """Scores by the form for so much shared memory."""
    fused.room_on = lambda device: room
    return forward(x).scores


def dense_rate(seconds: float) -> float:
    """Operations a second of a large product in bf16."""
    one, other = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * 8192**2 * rate(lambda x: x @ other, one, seconds, "cuda")


def measured(depth: int, options: argparse.Namespace) -> dict[str, Any]:
    """Rows a second of every form, in turns, and how far their scores are from float32's and from each other's."""
    model, device = network(depth), torch.device("cuda")
    forward = Forward(model, ForwardPlan(options.batch, "bf16", channels_last=True, fused=True), device, CLASSES)
    x = torch.rand(options.batch, *SHAPE, device=device)
    ready = x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    scores = {room: in_room(forward, room, ready) for room in fused.ROOMS}
    plain = torch.cat([Forward(model, ForwardPlan(512), device, CLASSES)(part).scores for part in x.split(512)])
    tasks: dict[str, Callable[[], float]] = {
        str(room): lambda room=room: rate(partial(in_room, forward, room), ready, options.seconds, "cuda")
        for room in fused.ROOMS
    }
    with FlopCounterMode(display=False) as counter:
        model.eval()(torch.rand(1, *SHAPE))
    first = scores[fused.ROOMS[0]]
    return {
        "depth": depth,
        "operations": counter.get_total_flops(),
        "rates": interleaved(tasks, options.repetitions),
        "equal": {room: bool(torch.equal(one, first)) for room, one in scores.items()},
        "off_float32": {
            room: float((one - plain).norm() / (plain - plain.mean(-1, keepdim=True)).norm())
            for room, one in scores.items()
        },
    }


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--depths", default="20,110")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of each measurement")
    options = parser.parse_args()
    if options.quick:
        options.depths, options.batch, options.seconds, options.repetitions = "8", 264, 0.05, 1
    dense = dense_rate(options.seconds)
    found = [measured(int(depth), options) for depth in options.depths.split(",")]
    rows, bars = [], []
    for one in found:
        largest = one["rates"][str(fused.ROOMS[0])]
        for room, rates in one["rates"].items():
            share, done = median_ratio(rates, largest), median(rates) * one["operations"]
            agrees = "yes" if one["equal"][int(room)] else "no"
            shown = [f"{median(rates):,.0f}", f"{100 * share:.1f}", f"{100 * done / dense:.1f}", agrees]
            name = f"ResNet-{one['depth']}, {int(room) / 1024:.1f} KB"
            rows.append([name, *shown, f"{one['off_float32'][int(room)]:.1e}"])
            bars.append(Bar(f"{name}: scores of other bits than the largest form's", "at most", 0, agrees == "no"))
    columns = ["network, shared memory", "rows/s", "% of the largest", "% of bf16", "same bits", "off float32"]
    grid = Grid(f"The fused kernel by shared memory, batch {options.batch}", columns, rows)
    settings = {"batch": options.batch, "seconds": options.seconds, "gpu": torch.cuda.get_device_name()}
    notes = [
        f"100% of bf16 are {dense / 1e12:.1f} TFLOP/s, a dense product of 8192 in this run.",
        "Off float32: norm of the difference over that of the scores about their row's mean.",
    ]
    raw = {"networks": found, "dense": dense}
    return finish(Report("gpu_rooms", settings, [grid], bars, raw, notes), options)


if __name__ == "__main__":
    sys.exit(main())

"""Smooth-Reduce: k patches of a batch against k plain forwards of the same rows, in wall time; certified norms."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from common import Bar, Grid, Report, arguments, finish, interleaved, median_ratio
from torch import Tensor, nn

import ringfence as rf
from ringfence.classifiers.architectures import build_architecture
from ringfence.classifiers.patches import Patches
from ringfence.lift import MODES, noise_place
from ringfence.operators import Crops

COUNT = 4


@torch.inference_mode()
def repeat(module: nn.Module, batch: Tensor, times: int) -> float:
    """Seconds of so many forwards."""
    begin = time.perf_counter()
    for _ in range(times):
        module(batch)
    return time.perf_counter() - begin


def tasks(network: nn.Module, shape: tuple[int, int, int], rows: int, times: int) -> dict[str, Callable[[], float]]:
    """Plain forwards of COUNT * rows inputs, and every noise mode on rows inputs."""
    side = shape[-1]
    crops = Crops(size=side, resize=round(side * 9 / 8), count=COUNT)
    images = torch.rand(rows, *shape)
    found: dict[str, Callable[[], float]] = {
        # The very patches, cut beforehand: pooling and rectifying cost other times on other data.
        "plain": partial(repeat, network, crops(images).flatten(0, 1).contiguous(), times),
    }
    for mode in MODES:
        lift, rest = noise_place(mode, crops, shape)
        found[mode] = partial(repeat, Patches(network, rest), lift(images), times)
    return found


def norm_milliseconds() -> dict[str, float]:
    """Time to certify a norm, caches empty."""
    found: dict[str, float] = {}
    for name, crops, side in (
        ("32 to 36, 4 crops of 32", Crops(size=32, resize=36, count=4), 32),
        ("224 to 256, 16 crops of 224", Crops(size=224, resize=256, count=16), 224),
        ("256 to 288, 16 crops of 256", Crops(size=256, resize=288, count=16), 256),
    ):
        begin = time.perf_counter()
        _ = crops.on(side, side).norm_bound
        found[name] = 1000 * (time.perf_counter() - begin)
    return found


def main() -> int:
    options = arguments(__doc__ or "")
    torch.set_num_threads(1)  # two threads on two busy cores measure the waiting of one for the other
    rows, times = (5, 1) if options.quick else (50, 4)
    networks = {
        "resnet20, 3 x 32 x 32": (build_architecture("resnet20").eval(), (3, 32, 32)),
        "lenet, 1 x 28 x 28": (rf.load_model("default").module, (1, 28, 28)),
    }
    table: list[list[str]] = []
    bars: list[Bar] = []
    raw: dict[str, object] = {}
    for name, (network, shape) in networks.items():
        seconds = interleaved(tasks(network, shape, rows, times), options.repetitions)
        raw[name] = seconds
        ratios = {mode: median_ratio(seconds[mode], seconds["plain"]) for mode in MODES}
        table += [[name, mode, f"{1000 * median(seconds[mode]) / times:.1f}", f"{ratios[mode]:.3f}"] for mode in MODES]
        if name.startswith("resnet"):
            bars += [
                Bar(f"{mode}: {COUNT} patches over {COUNT} plain forwards", "at most", 1.1, r)
                for mode, r in ratios.items()
            ]
    norms = norm_milliseconds()
    grids = [
        Grid(f"{COUNT} patches of {rows} rows", ["network", "mode", "ms a batch", "over plain forwards"], table),
        Grid("certified norms", ["operator", "ms"], [[name, f"{ms:.1f}"] for name, ms in norms.items()]),
    ]
    settings = {"rows": rows, "patches": COUNT, "threads": torch.get_num_threads()}
    return finish(Report("patches", settings, grids, bars, {"seconds": raw, "norm_ms": norms}), options)


if __name__ == "__main__":
    sys.exit(main())

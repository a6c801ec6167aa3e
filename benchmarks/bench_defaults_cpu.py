"""Defaults on a CPU, and --fast: draws a second of one processor, in short and long runs, beside the usual loop's.

By the processor's time in one thread, from the first draw on: checks and compiling are left out. Before a short run no
form is measured; before a long one all are, compiled ones where that pays, and then only as many of its draws are made
as the loop makes in some seconds. Without instructions for bf16 products there is no --fast, and no such column.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from bench_engine_cpu import SIGMA
from bench_small_runs import FEATURE_ROWS, LOOP_ROWS, NETWORKS, network
from beside_loop import LOOP, Rate, tables
from common import Bar, Report, arguments, finish
from torch import Tensor, nn

import ringfence as rf
from ringfence.sampling import multiplies_in_bf16

INPUTS, SHORT, LONG = 4, 100_000, 10**8
"""Inputs of a certification; draws of a short run, and those of which a long one would be the beginning."""
SECONDS = 3.0
"""Of a rate, at the speed of the loop."""


class SmallViT(nn.Module):
    """Patches of 4 x 4 pixels, four layers of 192 numbers and three heads."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(192, 3, 768, 0.0, batch_first=True, norm_first=True)
        self.cut, self.place = nn.Conv2d(3, 192, 4, 4), nn.Parameter(0.02 * torch.randn(1, 64, 192))
        self.layers, self.head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(192, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Images to scores."""
        scores: Tensor = self.head(self.layers(self.cut(x).flatten(2).transpose(1, 2) + self.place).mean(1))
        return scores


def rate(work: Callable[[], int]) -> float:
    """Draws in a second of the processor."""
    begin = time.process_time()
    return work() / (time.process_time() - begin)


def loop(module: nn.Module, x: Tensor, n: int) -> int:
    """As most scripts have it: one input, batch after batch, argmax counted."""
    counts, rows = torch.zeros(10, dtype=torch.int64), LOOP_ROWS if x.dim() == 3 else FEATURE_ROWS
    with torch.no_grad():
        for _ in range(max(1, n // rows)):
            repeated = x.repeat(rows, *[1] * x.dim())
            counts += torch.bincount(module(repeated + SIGMA * torch.randn_like(repeated)).argmax(1), minlength=10)
    return int(counts.sum())


def certified(name: str, how: str, module: nn.Module, x: Tensor, n: int, draws: int, **settings: Any) -> Rate:
    """The rate of ``rf.certify`` with n draws; draws: of the run that this is the beginning of."""
    ready: list[float] = []
    plans = []

    def begin(plan: Any) -> None:
        ready.append(time.process_time())
        plans.append(plan)

    execution = rf.Execution("cpu", draws=draws, on_plan=begin, on_remark=lambda told: print(f"  {told}", flush=True))
    settings |= {"sigma": SIGMA, "n": max(100, n // len(x)), "execution": execution, "check": False}
    started = time.process_time()
    drawn = sum(one.draws for one in rf.certify(module, x, **settings))
    rate = drawn / (time.process_time() - ready[-1])
    return Rate(name, how, rate, drawn, ready[-1] - started, plans[-1].settings())


def main() -> int:
    options = arguments(__doc__ or "")
    torch.set_num_threads(1)
    fast = {"precision": "bf16"} if multiplies_in_bf16(torch.device("cpu")) else None
    ways: Mapping[str, tuple[int, dict[str, Any] | None]] = {
        "default, short run": (0, {}),
        "default, long run": (LONG, {}),
        "fast, short run": (0, fast),
        "fast, long run": (LONG, fast),
    }
    names = ["mlp"] if options.quick else [*NETWORKS, "vit"]
    found: list[Rate] = []
    for name in names:
        torch.manual_seed(0)
        module = (SmallViT() if name == "vit" else network(name)).eval()
        x = torch.rand(INPUTS, *NETWORKS.get(name, (3, 32, 32)))
        loop(module, x[0], 1)
        n = int((0.02 if options.quick else SECONDS) * rate(lambda m=module, x=x: loop(m, x[0], 2000)))
        fastest = max(rate(lambda m=module, x=x, n=n: loop(m, x[0], n // 4)) for _ in range(4))
        found.append(Rate(name, LOOP, fastest, n, 0.0, {}))
        for way, (draws, settings) in ways.items():
            if settings is None or (options.quick and draws):
                continue
            found.append(certified(name, way, module, x, n if draws else min(n, SHORT), draws, **settings))
            print(f"{name}, {way}: {found[-1].rate:,.0f} draws a second", flush=True)
    grids, slowest = tables(found, "Draws in a second of one processor, and over the loop's")
    long = {one.network: one.rate for one in found if one.how == "default, long run"}
    gains = [one.rate / long[one.network] for one in found if one.how == "fast, long run"]
    gain = Bar("--fast over the default, long runs, the worst case", "at least", 1.0, min(gains, default=None), "times")
    settings = {"inputs": INPUTS, "seconds": SECONDS, "sigma": SIGMA, "threads": 1, "of": "single timings"}
    measured = {"rates": [asdict(one) for one in found]}
    return finish(Report("defaults_cpu", settings, grids, [slowest, gain], measured), options)


if __name__ == "__main__":
    sys.exit(main())

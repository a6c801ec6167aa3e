"""Defaults on a CPU, and --fast: draws a second of one processor, in short and long runs, beside the usual loop's.

By the processor's time in one thread, from the first draw on: checks and compiling are left out. Before a short run no
form is measured; before a long one all are, compiled ones where that pays, and then only as many of its draws are made
as the loop makes in some seconds. Without instructions for bf16 products there is no --fast, and no such column.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from bench_engine_cpu import SIGMA
from bench_small_runs import FEATURE_ROWS, LOOP_ROWS, NETWORKS, network
from common import Bar, Grid, Report, arguments, finish
from gpu_defaults import forms, told
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


def certified(module: nn.Module, x: Tensor, n: int, draws: int, **settings: Any) -> tuple[float, str]:
    """The rate of ``rf.certify`` and the forms it took; draws: of the run that this is the beginning of."""
    ready: list[float] = []
    plans = []

    def begin(plan: Any) -> None:
        ready.append(time.process_time())
        plans.append(plan)

    how = rf.Execution("cpu", draws=draws, on_plan=begin, on_remark=lambda told: print(f"  {told}", flush=True))
    records = list(rf.certify(module, x, sigma=SIGMA, n=max(100, n // len(x)), execution=how, check=False, **settings))
    drawn, plan = sum(one.draws for one in records), plans[-1].settings()
    return drawn / (time.process_time() - ready[-1]), f"{plan['batch']}, {forms(plan)}"


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
    rows, plans, rates = [], [], dict[str, dict[str, float]]()
    for name in names:
        torch.manual_seed(0)
        module = (SmallViT() if name == "vit" else network(name)).eval()
        x = torch.rand(INPUTS, *NETWORKS.get(name, (3, 32, 32)))
        loop(module, x[0], 1)
        n = int((0.02 if options.quick else SECONDS) * rate(lambda m=module, x=x: loop(m, x[0], 2000)))
        found = {"loop": max(rate(lambda m=module, x=x, n=n: loop(m, x[0], n // 4)) for _ in range(4))}
        for way, (draws, settings) in ways.items():
            if settings is None or (options.quick and draws):
                continue
            found[way], form = certified(module, x, n if draws else min(n, SHORT), draws, **settings)
            plans.append([f"{name}, {way}", form])
            print(f"{name}, {way}: {found[way]:,.0f} draws a second, {form}", flush=True)
        rates[name] = found
        shown = [told(found[way], found["loop"]) if way in found else "-" for way in ways]
        rows.append([name, f"{found['loop']:,.0f}", *shown])
    worst = min(rate / found["loop"] for found in rates.values() for way, rate in found.items() if way != "loop")
    gains = [
        found["fast, long run"] / found["default, long run"] for found in rates.values() if "fast, long run" in found
    ]
    bars = [
        Bar("the slowest of all over the loop", "at least", 1.0, worst, "times"),
        Bar("--fast over the default, long runs, the worst case", "at least", 1.0, min(gains, default=None), "times"),
    ]
    grids = [
        Grid("Draws in a second of one processor, and over the loop's", ["network", "loop", *ways], rows),
        Grid("Rows a forward, and forms", ["run", "chosen"], plans),
    ]
    settings = {"inputs": INPUTS, "seconds": SECONDS, "sigma": SIGMA, "threads": 1, "of": "single timings"}
    return finish(Report("defaults_cpu", settings, grids, bars, {"rates": rates}), options)


if __name__ == "__main__":
    sys.exit(main())

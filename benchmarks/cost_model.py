"""What a certification costs: draws, GPU-seconds and money, from the measured rates and the draws of committed runs.

python benchmarks/cost_model.py --price 3 && python benchmarks/tables.py
"""

from __future__ import annotations

import json
import sys
from functools import cache
from statistics import fmean, median
from typing import Any

import torch
from common import RESULTS, ROOT, Grid, Report, finish, options_parser
from torch.utils.flop_counter import FlopCounterMode

from ringfence.classifiers.architectures import build_architecture
from ringfence.store import RunFolder

FIXED = 100_100
"""Draws of Cohen et al. (2019): 100 to choose the class, 100,000 to prove it."""
SEQUENTIAL = "gaussian-resnet110-0.5-sequential-r1.0"
"""The committed run whose draws per input stand for those of a sequential test."""
WORK = (("CIFAR-10, every 20th", 500), ("CIFAR-10", 10_000), ("ImageNet, every 100th", 500), ("ImageNet", 50_000))


def draws_of(run: str) -> list[int]:
    """Draws that each input of a committed run took."""
    table = RunFolder.open(ROOT / "results" / "cifar10" / run).records(["draws"])
    return [int(one) for one in table["draws"].to_pylist()]


def _gpu() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / "gpu.json").read_text())
    return found


def measured(form: str) -> float:
    """Draws a second of ResNet-110 on CIFAR-10 in the engine, on one H200."""
    networks = _gpu()["measurements"]["networks"]
    (found,) = [one for one in networks if (one["depth"], one["form"]) == (110, form)]
    return median(found["engine"])


def flops(network: torch.nn.Module, size: int) -> int:
    """Floating point operations of one forward of a square colour image."""
    counted = FlopCounterMode(display=False)
    with torch.no_grad(), counted:
        network.eval()(torch.zeros(1, 3, size, size))
    return int(counted.get_total_flops())


@cache
def imagenet_rate() -> float:
    """Draws a second of ResNet-50 at 224 pixels, as the compiled ResNet-110 does operations: an estimate."""
    small, large = build_architecture("resnet110", 10), build_architecture("resnet50", 1000)
    return measured("compiled") * flops(small, 32) / flops(large, 224)


def main() -> int:
    parser = options_parser(__doc__ or "")
    parser.add_argument("--price", type=float, default=3.0, help="of a GPU-hour, in dollars")
    options = parser.parse_args()
    tests = {"fixed, n = 100,000": float(FIXED), "sequential, one radius": fmean(draws_of(SEQUENTIAL))}
    rates = {"CIFAR-10": measured("fused"), "ImageNet": imagenet_rate()}
    rows: list[list[str]] = []
    costs: list[dict[str, Any]] = []
    for data, inputs in WORK:
        for test, draws in tests.items():
            seconds = inputs * draws / rates[data.partition(",")[0]]
            money = seconds / 3600 * options.price
            costs.append({"data": data, "test": test, "draws": inputs * draws, "seconds": seconds, "dollars": money})
            told = f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.1f}"
            rows.append([f"{data}, {inputs:,} inputs", test, f"{inputs * draws:,.3g}", told, f"{money:,.2f}"])
    title = f"One network on H200s at {options.price:g} dollars an hour"
    columns = ["data", "test", "draws", "GPU-seconds", "dollars"]
    notes = [
        f"ResNet-110 on CIFAR-10 as one kernel: {rates['CIFAR-10']:,.0f} draws a second, measured (gpu.json).",
        f"ResNet-50 on ImageNet: {rates['ImageNet']:,.0f} draws a second, estimated: the measured rate of the compiled "
        "ResNet-110, by the operations of a forward, counted. Measure yours with `--limit 10` first.",
        f"Sequential tests took {tests['sequential, one radius']:,.0f} draws an input in the committed run "
        f"{SEQUENTIAL}; the same is taken for ImageNet. An ensemble of k costs k times as much, K-consensus less.",
        "The price is an assumption: pass `--price`.",
    ]
    origin = {key: _gpu()[key] for key in ("date", "repetitions", "environment")}  # the rates are that machine's
    settings = {"price": options.price, "rates": rates, "sequential": SEQUENTIAL}
    return finish(Report("cost", settings, [Grid(title, columns, rows)], [], {"costs": costs}, notes), options, origin)


if __name__ == "__main__":
    sys.exit(main())

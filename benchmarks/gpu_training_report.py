"""Rows of ``gpu_training.py`` as the house's tables: shares of the device's rate, bars, epochs of real trainings."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from common import Bar, Grid, Report
from gpu_training_kinds import kinds_grid
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

Row = dict[str, Any]

SMALL_BATCH = 4
"""At which operations are counted: they are in proportion to the batch."""


@dataclass(frozen=True)
class Rates:
    """TFLOP/s of a large dense product by the day that it was measured on: machines of one kind differ."""

    by_day: Mapping[str, float]
    otherwise: float

    def of(self, one: Row) -> float:
        """That of a row's own day, or of the day before it that is nearest."""
        before = [day for day in self.by_day if day <= one["measured"]]
        return self.by_day[max(before)] if before else self.otherwise


def share(one: Row, rates: Rates) -> float:
    """Per cent of the device's dense bf16 rate that the products and convolutions of a row's step are done at."""
    objective = str(one["objective"]).partition(",")[0]
    trainings = one["members"] // (3 if objective in ("drt", "adp", "gal") else 1)
    work = operations(one["network"], objective) * one["batch"] / SMALL_BATCH * trainings
    return float(100 * work / (one["ms"] / 1000) / (rates.of(one) * 1e12))


@cache
def operations(arch: str, objective: str) -> int:
    """Multiplications and additions of products and convolutions in one step of SMALL_BATCH images, counted as run."""
    from gpu_training_cases import objective_of
    from gpu_training_steps import Size, our_trainings

    size = Size(arch, torch.device("cpu"), SMALL_BATCH, 2 * SMALL_BATCH, 1)
    (training,) = our_trainings(size, 1, objective_of(objective), compile=False)
    with Counting() as counter:
        training.stepper.step()
    return counter.total


@cache
def pass_operations(arch: str) -> int:
    """Those of one image's scores and gradient in the image."""
    from gpu_training_steps import Size, network

    size = Size(arch, torch.device("cpu"), 1, 1, 1)
    plain = network(size).eval().requires_grad_(False)
    with Counting() as counter:
        plain(torch.rand(1, *size.shape, requires_grad=True)).sum().backward()
    return counter.total


class Counting(TorchDispatchMode):
    """torch's own counts, added up; its FlopCounterMode does not survive gradients of gradients."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and count."""
        found = func(*args, **(kwargs or {}))
        if (count := flop_registry.get(func._overloadpacket)) is not None:
            self.total += int(count(*args, **(kwargs or {}), out_val=found))
        return found


def epochs_of(log: Path) -> list[float]:
    """Seconds of the epochs in a training's log.csv, without the first of every session, whose clock begins anew."""
    with log.open(newline="") as file:
        ends = [float(line["seconds"]) for line in csv.DictReader(file)]
    return [round(b - a, 2) for a, b in pairwise(ends) if b > a]


def steps_grid(rows: Sequence[Row], rates: Rates) -> Grid:
    """Every timed step that is no part of another."""
    profiles = {(one["row"], one["network"], one["case"]): one["profile"] for one in rows if "profile" in one}
    lines = []
    for one in rows:
        if "s_epoch_member" not in one or one["row"].startswith("part: "):
            continue
        kernels = profiles.get((one["row"], one["network"], one["case"]))
        numbers = [f"{one['ms']:.2f}", f"{one['s_epoch_member']:.2f}", f"{share(one, rates):.1f}"]
        shown = [f"{kernels['launches']:,}", f"{kernels['us'] / 1000:.2f}"] if kernels else ["", ""]
        name = f"{one['network']}, {one['objective']}: {one['row']}"
        lines.append([name, str(one["members"]), *numbers, *shown, one["measured"]])
    columns = ["step", "members", "ms", "s an epoch and member", "% of bf16", "kernels", "ms of kernels", "measured"]
    return Grid("Training steps", columns, lines)


def attacks_grid(rows: Sequence[Row], rates: Rates) -> Grid:
    """Attacks by themselves; the loss is that of the network in float32."""
    lines = []
    for one in rows:
        if "passes_a_second" in one:
            rate, losses = one["passes_a_second"], one["loss_before_and_after"]
            numbers = [
                f"{one['s_images']:.2f}",
                f"{rate:,}",
                f"{rate * pass_operations(one['network']) / rates.of(one) / 1e10:.1f}",
            ]
            lines.append([f"{one['network']}: {one['row']}", *numbers, f"{losses[0]} to {losses[1]}", one["measured"]])
    columns = ["attack", "s for 50,000 images", "passes there and back a second", "% of bf16", "loss", "measured"]
    return Grid("Ten steps of PGD through two draws, as one graph of 256 images", columns, lines)


def parts_grid(rows: Sequence[Row]) -> Grid:
    """Pieces of our step."""
    lines = [
        [f"{one['network']}: {one['row'].removeprefix('part: ')}", f"{one['ms']:.3f}", one["measured"]]
        for one in rows
        if one["row"].startswith("part: ") and "ms" in one
    ]
    return Grid("Pieces of our step, each as a graph of its own", ["piece", "ms", "measured"], lines)


def layers_grid(rows: Sequence[Row]) -> Grid:
    """Convolutions alone."""
    kinds = ("forward", "input gradient", "weight gradient")
    lines = [
        [one["row"].removeprefix("layer "), *(f"{one['us'][kind]:.1f}" for kind in kinds), one["measured"]]
        for one in rows
        if one["row"].startswith("layer ")
    ]
    return Grid("Convolutions alone, us", ["layer", "forward", "to the input", "to the weight", "measured"], lines)


def epochs_grid(rows: Sequence[Row], logs: Mapping[str, Sequence[float]]) -> Grid:
    """Whole epochs, with checkpoints: of ``train`` in the benchmark, and of real trainings that ran side by side."""
    lines = []
    for one in rows:
        if "s_epoch" in one:
            found = one["s_epoch"]
            lines.append([f"{one['network']}: {one['row']}", "1", str(len(found)), f"{statistics.median(found):.2f}"])
    for name, seconds in logs.items():
        each = statistics.median(seconds) / len(logs)
        lines.append([f"{name}: {len(logs)} side by side", str(len(logs)), str(len(seconds)), f"{each:.2f}"])
    return Grid("Whole epochs", ["training", "members", "epochs", "s an epoch and member"], lines)


def bars(rows: Sequence[Row]) -> list[Bar]:
    """What training should reach on an H200."""

    def found(network: str, row: str, objective: str, key: str = "s_epoch_member") -> float | None:
        for one in reversed(rows):  # the latest
            same = one["network"] == network and one["row"] == row and key in one
            if same and one["objective"] == objective:
                return float(one[key])
        return None

    attacked = found("resnet110", "gradients fused", "pgd, 10 steps, m = 2", "s_images")

    plain = "gaussian, m = 1"  # forms of former times say more behind it, as `cuDNN alone`
    alone = found("resnet110", "ours, aimed", plain)
    graph = found("resnet110", "PyTorch, compiled, one graph", plain)
    ratio = alone / graph if alone and graph else None
    ten = "ours, 10 side by side"
    return [
        Bar("ResNet-110 alone, augmented, an epoch", "at most", 2.5, alone, "s"),
        Bar("ResNet-110 alone over PyTorch's compiled graph without augmentation", "at most", 1.05, ratio),
        Bar("ResNet-20 alone, augmented, an epoch", "at most", 0.5, found("resnet20", "ours, aimed", plain), "s"),
        Bar("ten ResNet-110, an epoch and member", "at most", 1.3, found("resnet110", ten, plain), "s"),
        Bar(
            "ten ResNet-110, consistency, the same", "at most", 2.2, found("resnet110", ten, "consistency, m = 2"), "s"
        ),
        Bar(
            "a step of DRT, three ResNet-20",
            "at most",
            18.25,
            found("resnet20", "ours, alone", "drt, m = 2", "ms"),
            "ms",
        ),
        Bar("ten PGD steps, m = 2, 50,000 images, ResNet-110", "at most", 10, attacked, "s"),
    ]


def report(
    rows: Sequence[Row], logs: Mapping[str, Sequence[float]], settings: Mapping[str, Any], notes: Sequence[str]
) -> Report:
    """Tables and bars; the device's rate is that of the day where it was measured."""
    rates = Rates({one["measured"]: one["tflops"] for one in rows if "tflops" in one}, settings["rate"])
    days = ", ".join(f"{rate:g} on {day}" for day, rate in rates.by_day.items())
    whence = f"{days} and until the next" if days else f"{rates.otherwise:g}, measured on such a device in another run"
    notes = [f"100% of bf16 are, in TFLOP/s, {whence}; counted are products and convolutions.", *notes]
    grids = [steps_grid(rows, rates), kinds_grid(rows), attacks_grid(rows, rates)]
    grids += [layers_grid(rows), parts_grid(rows), epochs_grid(rows, logs)]
    raw = {"rows": list(rows), "logs": dict(logs)}
    return Report("gpu_training", settings, [one for one in grids if one.rows], bars(rows), raw, notes)

"""Where the minutes of trainings come from: rows of results/benchmarks/gpu_training.json, times epochs and members.

Rows that were measured with another objective say so by a factor; what stands in no row here is an estimate. Labels
that a network gives under noise take what as many draws of a certificate do, by results/benchmarks/gpu.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paper_tables import ROOT

BENCHMARK = ROOT / "results" / "benchmarks" / "gpu_training.json"
DRAWS = ROOT / "results" / "benchmarks" / "gpu.json"
LABELLING = "ResNet-110, fused"
"""The row of draws a second of networks that label."""
THREE, TEN = (f"resnet110, consistency, m = 2: ours, {count} side by side" for count in (3, 10))
ONE_COPY = "resnet110, gaussian, m = 1: ours, 10 side by side"
"""Two noise copies were not measured for a ResNet-20, nor three ResNet-110 with one side by side on the kernels of now:
TEN over ONE_COPY and THREE over TEN are the factors."""


@dataclass(frozen=True)
class Source:
    """Seconds an epoch and member of a row, times epochs and members, and a factor where other rows give one.

    copies: two noise copies where the row has one. three: side by side, where the row has ten. labels: draws behind the
    labels, before the first epoch.
    """

    row: str
    members: int = 1
    epochs: int = 150
    copies: bool = False
    three: bool = False
    times: float = 1.0
    labels: int = 0

    def minutes(self, seconds: dict[str, float], rate: float) -> float:
        """Device minutes of one training, at so many draws a second."""
        factor = seconds[TEN] / seconds[ONE_COPY] if self.copies else 1.0
        factor *= seconds[THREE] / seconds[TEN] if self.three else 1.0
        trained = seconds[self.row] * self.times * factor * self.epochs * self.members
        return (trained + self.labels / rate) / 60


GAUSSIAN = Source(ONE_COPY, three=True)
CONSISTENCY = Source(THREE)
DRT = Source("resnet20, drt, m = 2: ours, alone", members=3)
SMALL = "resnet20, gaussian, m = 1: ours, 3 side by side"
ENSEMBLES = "horvath2022-ensembles"
SOURCES: dict[tuple[str, str], tuple[Source, ...]] = {
    (f"{ENSEMBLES}/resnet110.yaml", "gaussian-resnet110-{sigma}"): (GAUSSIAN,),
    (f"{ENSEMBLES}/resnet110.yaml", "consistency-resnet110-{sigma}"): (CONSISTENCY,),
    (f"{ENSEMBLES}/resnet110-ten.yaml", "consistency-resnet110-{sigma}"): (CONSISTENCY,),
    (f"{ENSEMBLES}/resnet110-ten.yaml", "consistency-resnet110-{sigma}-{number}"): (CONSISTENCY,),
    (f"{ENSEMBLES}/resnet110-ten.yaml", "gaussian-resnet110-0.25-{number}"): (GAUSSIAN,),
    (f"{ENSEMBLES}/denoised.yaml", "clean-resnet110"): (Source("resnet110, gaussian, m = 1: ours, alone"),),
    (f"{ENSEMBLES}/cifar10.yaml", "{kind}-{sigma}"): (
        Source("resnet20, gaussian, m = 1: ours, 10 side by side", members=10),
        Source("resnet20, gaussian, m = 1: ours, 10 side by side", members=10, copies=True),
    ),
    (f"{ENSEMBLES}/cifar10.yaml", "{kind}-resnet110-0.25"): (
        Source("resnet110, gaussian, m = 1: ours, alone"),
        Source("resnet110, consistency, m = 2: ours, alone"),
    ),
    (f"{ENSEMBLES}/cifar10.yaml", "drt-{rho1}-{rho2}-0.25"): (Source(DRT.row, members=3, epochs=10),),
    (f"{ENSEMBLES}/minibatches.yaml", "consistency-batch{batch}-0.25"): (
        Source(SMALL, members=3, copies=True),
        Source(SMALL, members=3, copies=True, times=2),
    ),
    ("horvath2022-aces/aces.yaml", "select-{eta}-resnet110-0.25"): (  # the second takes the labels of the first
        Source("resnet110, gaussian, m = 1: ours, alone", labels=50_000 * 1000),
        Source("resnet110, gaussian, m = 1: ours, alone"),
    ),
    ("yang2022-diversity/cifar10-drt.yaml", "gaussian-two-{sigma}"): (Source(SMALL, members=3, copies=True),),
    ("yang2022-diversity/cifar10-drt.yaml", "try-{sigma}-{rho1}-{rho2}-lr{rate}"): (
        Source(DRT.row, members=3, epochs=10),
    ),
    ("yang2022-diversity/cifar10-drt.yaml", "drt-full-{sigma}-{rho1}-{rho2}"): (DRT,),
}
"""Sweep file and entry -> its trainings, each kind once; their mean is the entry's minutes. Half the batch: twice the
steps."""


def derived(benchmark: Path = BENCHMARK) -> Iterator[tuple[str, str, float]]:
    """Sweep file, entry, minutes as the rows give them."""
    seconds, rate = (
        _column(benchmark, "step", "s an epoch and member"),
        _column(DRAWS, "network", "engine/s")[LABELLING],
    )
    for (file, entry), sources in SOURCES.items():
        yield file, entry, sum(one.minutes(seconds, rate) for one in sources) / len(sources)


def _column(benchmark: Path, name: str, column: str) -> dict[str, float]:
    """Row -> number, of the benchmark's first table."""
    table = json.loads(benchmark.read_text(encoding="utf-8"))["tables"][0]
    key, each = table["columns"].index(name), table["columns"].index(column)
    return {row[key]: float(row[each].replace(",", "")) for row in table["rows"]}

"""Where the minutes of trainings come from: rows of results/benchmarks/gpu_training.json, times epochs and members.

Rows that were measured with another objective say so by a factor; what stands in no row here is an estimate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paper_tables import ROOT

BENCHMARK = ROOT / "results" / "benchmarks" / "gpu_training.json"
TWO_COPIES = (
    "resnet110, consistency, m = 2: ours, 3 side by side",
    "resnet110, gaussian, m = 1, kernels by Triton: ours, 3 side by side",
)
"""A ResNet-20 with two noise copies was not measured: the factor that they are for a ResNet-110."""


@dataclass(frozen=True)
class Source:
    """Seconds an epoch and member of a row, times epochs and members, and a factor where another row gives one."""

    row: str
    members: int = 1
    epochs: int = 150
    copies: bool = False
    times: float = 1.0

    def minutes(self, seconds: dict[str, float]) -> float:
        """Device minutes of one training."""
        factor = seconds[TWO_COPIES[0]] / seconds[TWO_COPIES[1]] if self.copies else 1.0
        return seconds[self.row] * self.times * factor * self.epochs * self.members / 60


GAUSSIAN = Source(TWO_COPIES[1])
CONSISTENCY = Source(TWO_COPIES[0])
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
    ("yang2022-diversity/cifar10-drt.yaml", "gaussian-two-{sigma}"): (Source(SMALL, members=3, copies=True),),
    ("yang2022-diversity/cifar10-drt.yaml", "drt-full-{sigma}-{rho1}-{rho2}"): (DRT,),
}
"""Sweep file and entry -> its trainings, each kind once; their mean is the entry's minutes. Half the batch: twice the
steps."""


def derived(benchmark: Path = BENCHMARK) -> Iterator[tuple[str, str, float]]:
    """Sweep file, entry, minutes as the rows give them."""
    table = json.loads(benchmark.read_text(encoding="utf-8"))["tables"][0]
    name, each = table["columns"].index("step"), table["columns"].index("s an epoch and member")
    seconds = {row[name]: float(row[each]) for row in table["rows"]}
    for (file, entry), sources in SOURCES.items():
        yield file, entry, sum(one.minutes(seconds) for one in sources) / len(sources)

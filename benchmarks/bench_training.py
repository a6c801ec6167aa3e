"""Seconds per step of every objective on MNIST's shape: what DRT costs beside plain and SmoothAdv training.

Yang et al. 2022 (F.1, one 1080 Ti, batch 256, three LeNets): DRT over Gaussian 1.04 s, SmoothAdv 1.86 s, DRT over
SmoothAdv 2.52 s a batch. Compared are ratios within one machine, never seconds across machines.

    python benchmarks/bench_training.py [--quick]
"""

from __future__ import annotations

import statistics
import sys

import torch
from common import Bar, Grid, Report, arguments, finish, interleaved, median_ratio

from ringfence.classifiers.architectures import LeNet
from ringfence.training import DeviceData, TrainingJob
from ringfence.training.fabric import make_fabric
from ringfence.training.objectives import Drt, NoiseAugmentation, Objective, SmoothAdv
from ringfence.training.stepper import Stepper

MEMBERS = 3
PUBLISHED = {"drt over gaussian": 1.04, "smoothadv": 1.86, "drt over smoothadv": 2.52}
OBJECTIVES: dict[str, Objective] = {
    "gaussian": NoiseAugmentation(),
    "smoothadv": SmoothAdv(),
    "drt over gaussian": Drt(NoiseAugmentation()),
    "drt over smoothadv": Drt(SmoothAdv()),
}


def main() -> int:
    options = arguments(__doc__ or "")
    batch = 16 if options.quick else 256
    repetitions = 1 if options.quick else options.repetitions
    fabric = make_fabric("auto", 1, "fp32")
    fabric.launch()
    torch.manual_seed(0)
    data = DeviceData(torch.rand(batch, 1, 28, 28), torch.arange(batch) % 10, 10).to(fabric.device)
    rows = torch.arange(batch, device=fabric.device)

    def task(objective: Objective):
        members = [LeNet().to(fabric.device) for _ in range(MEMBERS)]
        stepper = Stepper(TrainingJob(objective, batch=batch), members, data, fabric)

        def step() -> None:
            stepper.aim(rows, 0.01)
            stepper.step()
            float(stepper.sums[0])  # wait for the device

        return step

    seconds = interleaved({name: task(objective) for name, objective in OBJECTIVES.items()}, repetitions)
    against = seconds["smoothadv"]
    lines = [
        (
            name,
            f"{statistics.median(found):.4f}",
            f"{median_ratio(found, against):.2f}",
            f"{PUBLISHED[name] / PUBLISHED['smoothadv']:.2f}" if name in PUBLISHED else "-",
        )
        for name, found in seconds.items()
    ]
    columns = ("objective, three LeNets", "s per step", "of SmoothAdv's", "Yang et al. 2022: of SmoothAdv's")
    ratio = median_ratio(seconds["drt over gaussian"], against)
    report = Report(
        name="training",
        settings={"batch": batch, "members": MEMBERS, "device": str(fabric.device)},
        grids=[Grid("Cost of a training step", columns, lines)],
        bars=[Bar("a step of DRT over Gaussian costs less than one of SmoothAdv", "at most", 1.0, ratio)],
        measurements={"seconds": seconds},
        notes=[
            "The paper's SmoothAdv and DRT ran three members too; its code attacks each member apart, as ours does."
        ],
    )
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

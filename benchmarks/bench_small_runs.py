"""Small runs on the CPU: rf.certify by its defaults, checks before the first draw included, over a plain loop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import torch
from bench_engine_cpu import ALPHA, N0, SIGMA, Work, plain_loop
from common import Bar, Grid, Report, arguments, finish, interleaved, median_ratio
from torch import nn

import ringfence as rf
from ringfence.classifiers.architectures import build_architecture
from ringfence.data import Input
from ringfence.sampling import ForwardPlan

NETWORKS = {"lenet": (1, 28, 28), "resnet20": (3, 32, 32), "resnet18": (3, 64, 64), "mlp": (30,)}
SIZES = ((2, 1000), (10, 1000), (2, 10_000))
"""Inputs, and draws of each."""
LOOP_ROWS, FEATURE_ROWS = 100, 1000
"""Of a forward of the plain loop, of pictures and of features: whichever of the two is faster."""


def network(name: str) -> nn.Module:
    """One by its name; of features two layers."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(*NETWORKS[name], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return build_architecture(name, 10)


def defaults(work: Work, checks: list[float]) -> Callable[[], None]:
    """As a newcomer writes it; checks: takes the seconds before the first draw of every call."""
    x = torch.stack([item.x for item in work.inputs])

    def certify() -> None:
        begin = time.perf_counter()
        how = rf.Execution(on_plan=lambda plan: checks.append(time.perf_counter() - begin))
        records = list(rf.certify(work.module, x, sigma=SIGMA, n=work.n, alpha=ALPHA, execution=how))
        assert sum(record.draws for record in records) == work.draws

    return certify


def main() -> int:
    options = arguments(__doc__ or "")
    networks, sizes = (["lenet"], [(2, 50)]) if options.quick else ([*NETWORKS], SIZES)
    tasks: dict[str, Callable[[], None]] = {}
    checks: dict[str, list[float]] = {}
    for name in networks:
        torch.manual_seed(0)
        module, images = network(name).eval(), torch.rand(10, *NETWORKS[name])
        rows = LOOP_ROWS if images.dim() == 4 else FEATURE_ROWS
        inputs = [Input(place, x, None, "") for place, x in enumerate(images)]
        for count, n in sizes:
            case = f"{name}, {count} x {n:,}"
            work = Work(module, inputs[:count], n, ForwardPlan(rows))
            tasks |= {
                f"{case}: ringfence": defaults(work, checks.setdefault(case, [])),
                f"{case}: loop": plain_loop(work, rows),
            }
    seconds = interleaved(tasks, options.repetitions)
    table, ratios = [], {}
    for case in dict.fromkeys(name.rpartition(": ")[0] for name in tasks):
        ours, theirs = seconds[f"{case}: ringfence"], seconds[f"{case}: loop"]
        ratios[case] = median_ratio(ours, theirs)
        checked = median_ratio(checks[case][1:], theirs)  # the first call is unmeasured
        table.append([case, f"{median(theirs):.3f}", f"{median(ours):.3f}", f"{ratios[case]:.2f}", f"{checked:.2f}"])
    bars = [
        Bar(
            f"rf.certify over a plain loop, {name}, the worst case",
            "at most",
            1.1,
            max(ratio for case, ratio in ratios.items() if case.startswith(f"{name},")),
        )
        for name in networks
    ]
    threads = torch.get_num_threads()
    title = f"Inputs x draws of each, and {N0} that choose the class; {threads} thread(s), seconds"
    grid = Grid(title, ["", "plain loop", "rf.certify", "ratio", "of it checks"], table)
    notes = [
        "Of it checks: what passes before the first draw, over the plain loop; longer runs take no longer for it. Each "
        "part of it refuses networks that would get wrong certificates. What else small runs have beyond the loop: a "
        "last batch that is filled up, and small operations between forwards, which short forwards feel.",
        "Both run in one process, so the loop, too, has the freed memory that rf.certify makes the process keep.",
    ]
    settings = {"sizes": sizes, "n0": N0, "loop_rows": [LOOP_ROWS, FEATURE_ROWS], "threads": threads}
    return finish(Report("small_runs", settings, [grid], bars, {"seconds": seconds, "checks": checks}, notes), options)


if __name__ == "__main__":
    sys.exit(main())

"""What exact noise costs: draws a second of a certification with exact noise, over those with float noise.

    python benchmarks/exact_cost.py [--out DIR] [--seconds 2]

On a GPU with fused ResNets of depth 20 and 110, on the CPU with the embedded LeNet on its digits, in one thread and
by the processor's time. Both forms take turns, and the best round of each counts: whatever else a machine does only
makes rounds slower. Rates do not depend on weights: the ResNets' are random. A GPU's result is a file of its own,
exact_cost_gpu.json, beside that of a CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from common import Bar, Grid, Report, finish, interleaved, options_parser
from gpu_rates import SIGMA, draws_each, engine, network, plan_of

import ringfence as rf
from ringfence.classifiers.fused import why_not
from ringfence.sampling import ForwardPlan

FORMS = ("float", "exact")
MOST = {"ResNet-20": 5.0, "ResNet-110": 1.0, "LeNet": 10.0}
"""Percent of the rate that exact noise may cost."""

Rate = Callable[[rf.Gaussian, int], float]
"""Draws a second with a noise and so many draws for each input."""


def resnet_rate(depth: int, options: argparse.Namespace) -> Rate:
    """A fused ResNet on a GPU, compiled where the kernel does not run."""
    form = "compiled" if why_not(torch.device(options.device)) else "fused"
    model, plan = network(depth), plan_of(form, options)
    return lambda noise, n: engine(model, plan, rf.Fixed(n=n), options.inputs, options.device, noise=noise)[0]


def lenet_rate(options: argparse.Namespace) -> Rate:
    """The embedded classifier on its digits: draws in a second of one processor."""
    torch.set_num_threads(1)
    model = rf.load_model("default").module
    data = list(rf.load_dataset("default", limit=options.inputs))

    def rate(noise: rf.Gaussian, n: int) -> float:
        started: list[float] = []
        plan = ForwardPlan(options.batch)
        execution = rf.Execution("cpu", plan=plan, on_plan=lambda plan: started.append(time.process_time()))
        records = list(rf.certify(model, data, noise=noise, procedure=rf.Fixed(n=n), execution=execution))
        return sum(one.draws for one in records) / (time.process_time() - started[0])

    return rate


def measured(options: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Rates of both forms, round by round, for every network that is measured here."""
    on_gpu = options.device == "cuda"
    every = {f"ResNet-{depth}": resnet_rate(depth, options) for depth in (20, 110)} if on_gpu else {}
    every = every or {"LeNet": lenet_rate(options)}
    found = {}
    for name, rate in every.items():
        first = rate(rf.Gaussian(SIGMA, FORMS[0]), 200)  # kernels are compiled now
        n = draws_each(first, options.seconds, options.inputs)
        tasks = {form: (lambda form=form, rate=rate, n=n: rate(rf.Gaussian(SIGMA, form), n)) for form in FORMS}
        found[name] = interleaved(tasks, options.repetitions)
    return found


def cost(rates: dict[str, list[float]]) -> float:
    """Percent of the rate, in the best round of each form."""
    return 100 * (1 - max(rates["exact"]) / max(rates["float"]))


def parsed() -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = options_parser(__doc__ or "")
    parser.add_argument("--batch", type=int, default=8192 if cuda else 100)
    parser.add_argument("--inputs", type=int, default=40 if cuda else 4)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each measurement")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    options = parser.parse_args()
    if options.quick:
        options.repetitions, options.seconds = 1, 0.1
    return options


def main() -> int:
    options = parsed()
    found = measured(options)
    rows = [
        [name, f"{max(rates['float']):,.0f}", f"{max(rates['exact']):,.0f}", f"{cost(rates):.2f}"]
        for name, rates in found.items()
    ]
    grid = Grid("Draws a second by the form of the noise", ["network", "float", "exact", "cost %"], rows)
    bars = [
        Bar(f"{name}: what exact noise costs", "at most", MOST[name], cost(rates), "%") for name, rates in found.items()
    ]
    settings = {name: getattr(options, name) for name in ("batch", "inputs", "seconds", "device")} | {"of": "best"}
    note = "Rounds of both forms in turn, the best of each; on the CPU in one thread, by the processor's time."
    name = "exact_cost_gpu" if options.device == "cuda" else "exact_cost"
    return finish(Report(name, settings, [grid], bars, {"rates": found}, [note]), options)


if __name__ == "__main__":
    sys.exit(main())

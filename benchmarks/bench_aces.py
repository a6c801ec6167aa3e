"""(8) What a grid of 101 ACES thresholds costs more than a single one: whole certifications, one sampling pass each."""

from __future__ import annotations

import sys
import time
from statistics import median

import torch
from common import Bar, Grid, Report, arguments, finish, interleaved, median_ratio

import ringfence as rf
from ringfence.classifiers import Aces, EntropySelector
from ringfence.procedures import AcesCertify, AcesPredict, Procedure
from ringfence.sampling import ForwardPlan

LIMIT = 1.05
GRIDS = {"1 theta": [0.5], "101 thetas": [round(0.01 * k, 2) for k in range(101)]}


def seconds(thetas: list[float], procedure: Procedure, inputs: int, plan: ForwardPlan, device: str) -> float:
    """Time of certifying the first inputs of the embedded digits, all lanes, records included."""
    digits = rf.load_dataset("default", limit=inputs)
    aces = Aces(rf.load_model("default").module, EntropySelector(thetas), rf.load_model("default:1").module)
    execution = rf.Execution(device=device, plan=plan)
    begin = time.perf_counter()
    found = rf.certify(
        aces, digits, noise=rf.Gaussian(0.5, "float"), procedure=procedure, lanes=aces.names, execution=execution
    )
    assert sum(1 for _ in found) == inputs * len(thetas)
    return time.perf_counter() - begin


def main() -> int:
    options = arguments(__doc__ or "")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = ForwardPlan(8192 if device == "cuda" else 400)
    inputs, n = (2, 2_000) if options.quick else (20, 100_000) if device == "cuda" else (1, 100_000)
    kinds: dict[str, Procedure] = {"certify": AcesCertify(n=n), "predict": AcesPredict(n=n)}
    tasks = {
        f"{kind}, {name}": lambda grid=grid, procedure=procedure: seconds(grid, procedure, inputs, plan, device)
        for kind, procedure in kinds.items()
        for name, grid in GRIDS.items()
    }
    times = interleaved(tasks, options.repetitions)
    ratios = {kind: median_ratio(times[f"{kind}, 101 thetas"], times[f"{kind}, 1 theta"]) for kind in kinds}
    rows = [
        [kind, *(f"{median(times[f'{kind}, {name}']):.3f}" for name in GRIDS), f"{ratios[kind]:.3f}"] for kind in kinds
    ]
    title = f"Seconds for {inputs} inputs, {n:,} draws each, LeNet on {device}"
    grid = Grid(title, ["procedure", *GRIDS, "ratio"], rows)
    bars = [Bar(f"{kind}: 101 thetas over 1", "at most", LIMIT, ratio) for kind, ratio in ratios.items()]
    settings = {"inputs": inputs, "n": n, "batch": plan.batch, "device": device}
    return finish(Report("aces", settings, [grid], bars, {"seconds": times}), options)


if __name__ == "__main__":
    sys.exit(main())

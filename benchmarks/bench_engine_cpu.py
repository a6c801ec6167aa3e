"""(1) The engine on the CPU: a whole certification over the raw forwards of the same noisy inputs, and over others."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch
from common import Bar, Grid, Report, arguments, finish, interleaved, median_ratio
from scipy.stats import beta, norm
from torch import Tensor, nn

import ringfence as rf
from ringfence.data import Input
from ringfence.sampling import Forward, ForwardPlan, fastest_plan

SIGMA, N0, ALPHA, CLASSES = 0.5, 100, 0.001, 10
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Work:
    """The certification everybody does: n0 + n draws of every input."""

    module: nn.Module
    inputs: list[Input]
    n: int
    plan: ForwardPlan

    @property
    def draws(self) -> int:
        """All of them."""
        return len(self.inputs) * (N0 + self.n)


def engine(work: Work) -> Callable[[], None]:
    """rf.certify, from inputs to records; the forward shape is given, as for a run that goes on."""
    procedure = rf.Fixed(alpha=ALPHA, n0=N0, n=work.n)
    execution = rf.Execution(device="cpu", plan=work.plan)

    def certify() -> None:
        records = list(
            rf.certify(
                work.module,
                work.inputs,
                noise=rf.Gaussian(SIGMA),
                procedure=procedure,
                precision=work.plan.precision,
                execution=execution,
            )
        )
        assert sum(record.draws for record in records) == work.draws

    return certify


def compiled_engine(work: Work) -> Callable[[], float]:
    """The same with ``--compile``; compiling, a few seconds once per run, is left out of the time it returns."""
    started: list[float] = []
    plan = replace(work.plan, compile=True)
    execution = rf.Execution(device="cpu", plan=plan, on_plan=lambda plan: started.append(time.perf_counter()))
    procedure = rf.Fixed(alpha=ALPHA, n0=N0, n=work.n)

    def certify() -> float:
        options = {"noise": rf.Gaussian(SIGMA), "procedure": procedure, "execution": execution}
        list(rf.certify(work.module, work.inputs, precision=plan.precision, **options))
        return time.perf_counter() - started[-1]

    return certify


def raw_forwards(work: Work) -> Callable[[], None]:
    """The network alone at the same plan, on noisy inputs drawn beforehand; short batches are padded alike."""
    clean = torch.stack([item.x for item in work.inputs])
    batch = work.plan.batch
    batches = [
        clean[torch.randint(len(clean), (batch,))] + SIGMA * torch.randn(batch, *clean.shape[1:]) for _ in range(50)
    ]
    count = -(-work.draws // batch)

    def forwards() -> None:
        forward = Forward(work.module, work.plan, CPU, CLASSES)
        for number in range(count):
            forward(batches[number % len(batches)])

    return forwards


def plain_loop(work: Work, batch: int) -> Callable[[], None]:
    """One image at a time, as research code does it: repeat, add noise, argmax, count in Python."""

    @torch.no_grad()
    def counts(x: Tensor, n: int) -> list[int]:
        votes = [0] * CLASSES
        while n > 0:
            size = min(batch, n)
            n -= size
            repeated = x.repeat(size, *[1] * x.dim())
            for prediction in work.module(repeated + SIGMA * torch.randn_like(repeated)).argmax(1).numpy():
                votes[prediction] += 1
        return votes

    def certify() -> None:
        work.module.to(memory_format=torch.contiguous_format)
        for item in work.inputs:
            top = int(np.argmax(counts(item.x, N0)))
            hits = counts(item.x, work.n)[top]
            lower = beta.ppf(ALPHA, hits, work.n - hits + 1) if hits else 0.0
            _ = SIGMA * norm.ppf(lower) if lower > 0.5 else 0.0

    return certify


def toolbox(work: Work) -> Callable[[], None] | None:
    """adversarial-robustness-toolbox at its default batch size; None where it is not installed."""
    try:
        import statsmodels  # noqa: F401 (the toolbox imports it only while it certifies)
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
    except ImportError:
        return None
    smoothed = PyTorchRandomizedSmoothing(
        model=work.module,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(work.inputs[0].x.shape),
        nb_classes=CLASSES,
        device_type="cpu",
        sample_size=N0,
        scale=SIGMA,
        alpha=ALPHA,
    )
    x = np.stack([item.x.numpy() for item in work.inputs])

    def certify() -> None:
        work.module.to(memory_format=torch.contiguous_format)
        smoothed.certify(x, n=work.n)

    return certify


def main() -> int:
    options = arguments(__doc__ or "")
    count, n = (3, 200) if options.quick else (10, 6000)
    module = rf.load_model("default").module
    inputs = list(rf.load_dataset("default", skip=25, limit=count))
    plan = fastest_plan(module, tuple(inputs[0].x.shape), CLASSES, CPU, draws=count * (N0 + n))
    work = Work(module, inputs, n, plan)
    tasks: dict[str, Callable[[], float | None]] = {
        "raw forwards": raw_forwards(work),
        "ringfence": engine(work),
        "plain loop, batch 100": plain_loop(work, 100),
        "plain loop, batch 1000": plain_loop(work, 1000),
    }
    if not options.quick:
        tasks["ringfence, compiled"] = compiled_engine(work)
    notes = []
    other = toolbox(work)
    if other:
        tasks["adversarial-robustness-toolbox"] = other
    else:
        notes.append("adversarial-robustness-toolbox is not installed: see docs/benchmarks.md.")
    seconds = interleaved(tasks, options.repetitions)
    raw, ours = seconds["raw forwards"], seconds["ringfence"]
    rows = [
        [
            name,
            f"{median(times):.3f}",
            f"{work.draws / median(times):,.0f}",
            f"{median_ratio(times, raw):.2f}",
            f"{median_ratio(times, ours):.2f}",
        ]
        for name, times in seconds.items()
    ]
    theirs = seconds.get("adversarial-robustness-toolbox")
    compiled = seconds.get("ringfence, compiled")
    bars = [
        Bar("engine time over raw forward time", "at most", 1.35, median_ratio(ours, raw)),
        Bar("toolbox time over engine time", "at least", 3, median_ratio(theirs, ours) if theirs else None),
        Bar(
            "toolbox time over compiled engine time (compiling apart)",
            "at least",
            3,
            median_ratio(theirs, compiled) if theirs and compiled else None,
        ),
    ]
    threads, layout = torch.get_num_threads(), "channels last" if plan.channels_last else "channels first"
    title = (
        f"Embedded LeNet, {count} digits, {N0} + {n:,} draws each; batch {plan.batch}, {layout}, {threads} thread(s)"
    )
    grid = Grid(title, ["", "seconds", "draws/s", "over raw forwards", "over ringfence"], rows)
    settings = {"inputs": count, "n0": N0, "n": n, "plan": plan.settings(), "threads": threads}
    return finish(Report("engine_cpu", settings, [grid], bars, {"seconds": seconds}, notes), options)


if __name__ == "__main__":
    sys.exit(main())

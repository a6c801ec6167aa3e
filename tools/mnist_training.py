"""The trainings behind results/mnist.md: every row of the table at its sigmas."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from side_by_side import Task

SIGMAS = (0.5, 0.25, 1.0)
MEMBERS = 3
HEAVY = ("smoothadv", "smoothmix")
TUNED = ("drt-gaussian", "drt-smoothadv")
RHO = {
    (0.25, "gaussian"): (0.1, 0.5),
    (0.5, "gaussian"): (0.5, 2.0),
    (1.0, "gaussian"): (1.0, 5.0),
    (0.25, "smoothadv"): (0.1, 0.5),
    (0.5, "smoothadv"): (0.2, 5.0),
    (1.0, "smoothadv"): (0.2, 5.0),
}
"""(rho1, rho2): one setting of Yang et al. 2022, tables 4 to 6, for each sigma and base."""
SINGLES = ("macer", "consistency", "stability", "smoothmix")


def make_job(row: str, sigma: float, options: argparse.Namespace) -> Any:
    """The training behind a row of the table."""
    from ringfence.training.job import TrainJob

    epochs = options.heavy_epochs if row in HEAVY else options.tune_epochs if row in TUNED else options.epochs
    common: dict[str, Any] = {
        "data": f"mnist:{options.data}",
        "out": options.work / "zoo" / f"{row}-{sigma:g}",
        "options": {"sigma": sigma, "epochs": epochs, "batch": 256, "graph": options.graph, "compile": options.compile},
        "schedule": {"lr": 0.01, "kind": "step", "every": max(1, -(-epochs // 3))},
        "device": options.device,
        "limit": options.limit,
    }
    if row.startswith("drt-"):
        base = row.removeprefix("drt-")
        rho1, rho2 = RHO[(sigma, base)]
        return TrainJob(
            **(common | {"schedule": common["schedule"] | {"lr": 0.001}}),
            objective="drt",
            base=base,
            members=MEMBERS,
            settings={"rho1": rho1, "rho2": rho2},
            init=options.work / "zoo" / f"{base}-{sigma:g}",
        )
    settings: dict[str, Any] = {"macer": {"weight": 4.0}, "smoothmix": {"steps": 4, "step": 0.5}}.get(row, {})
    if row == "macer":
        # Without it the noisy accuracy on the training images fell from 92% to 77% between the epochs 10 and 30.
        common["options"] |= {"clip": 1.0}
    return TrainJob(**common, objective=row, members=1 if row in SINGLES else MEMBERS, settings=settings)


def train_together(trainings: list[tuple[Any, int]]) -> None:
    """Trainings (job, member) in a process of their own, as branches of one recorded step; a line every ten epochs."""
    import torch

    from ringfence.training.running import run_together

    torch.set_num_threads(1)

    def report(job: Any, number: int, status: Any) -> None:
        if status.step == status.steps and (status.epoch % 10 == 0 or status.epoch == status.epochs):
            terms = ", ".join(f"{name} {value:.3f}" for name, value in status.terms.items())
            print(
                f"{job.out.name} [{number}] epoch {status.epoch}/{status.epochs}: {terms}, "
                f"noisy accuracy {status.accuracy:.4f}, {status.seconds:.0f} s, {status.left:.0f} s left",
                flush=True,
            )

    run_together(trainings, report)


def training_tasks(options: argparse.Namespace) -> list[Task]:
    """Longest first; a DRT waits for the members it starts from. Members go together, and all DRTs."""
    tasks: list[Task] = []
    tuned: list[Any] = []
    for sigma in options.sigmas:
        rows = ["smoothadv", "gaussian", "drt-smoothadv", "drt-gaussian"]
        if sigma == SIGMAS[0]:
            rows += ["macer", "smoothmix", "gal", "adp", "consistency", "stability"]
        for row in rows:
            if options.rows and row not in options.rows:
                continue
            job = make_job(row, sigma, options)
            if row in TUNED:
                tuned += [] if job.finished else [job]
                continue
            every = [(job, member) for member in job.trainings]
            tasks.append(Task(f"{row}-{sigma:g}", partial(train_together, every), job.final(job.members - 1)))
    if tuned:
        needed = tuple(job.init / f"final-{i}.safetensors" for job in tuned for i in range(MEMBERS))
        name = " ".join(job.out.name for job in tuned)
        every = [(job, 0) for job in tuned]
        tasks.insert(0, Task(name, partial(train_together, every), tuned[-1].final(MEMBERS - 1), needed))
    return tasks

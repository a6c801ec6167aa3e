"""The learning rate of DRT's fine-tuning: what trainings on part of the training images reached on the others."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from paper_runs import Run
from paper_tables import Row, section, table
from paper_trainings import ZOO, Training, read_training

ABOUT = (
    "The paper tunes the learning rate of the fine-tuning and does not print it. Each of these trainings held",
    "training images out, which the members it began with had seen; the way and the rate with the largest average",
    "radius on some of these (mean softmax) are to be those of all DRT with the wide LeNet, for small and for large",
    "rho1 apart. Way: how pairs are added up, below. Loss: cross-entropy and both terms of DRT, of which that of",
    "margins is negative, over the first and the last epoch. Member: accuracy on training images under the noise of",
    "the training, over the same epochs; then that of the mean softmax on those held out, at the end. Members begin",
    "as networks trained with this noise: where they end far below, the steps were too large, and they lost what",
    "they had learned. A dash: not certified.",
)
NONE = "No rate was certified yet, so none is chosen."


def chosen_rates(runs: Sequence[Run], zoo: Path = ZOO) -> list[str]:
    """A row for each training that held images out; runs: those on training images."""
    certified = {run.trainings[0].name: run for run in runs if run.trainings}
    found = [read_training(zoo, f"mnist/{log.parent.name}") for log in sorted(zoo.glob("mnist/*/joint.csv"))]
    found.sort(key=lambda one: -float(one.plan["schedule"]["lr"]))
    rows = [_row(one, zoo / one.name / "joint.csv", certified.get(one.name)) for one in found]
    head = ["rate", "sigma, rho1, rho2", "way", "epochs", "loss, first", "last"]
    head += ["member %, first", "last", "held out", "%", "ACR of these"]
    about = ABOUT if any(one.name in certified for one in found) else (*ABOUT, NONE)
    return section("MNIST: the learning rate of DRT", about, *([table(head, rows)] if rows else []))


def _row(training: Training, log: Path, run: Run | None) -> Row:
    epochs = list(csv.DictReader(log.read_text(encoding="utf-8").splitlines()))
    first, last = epochs[0], epochs[-1]
    objective, plan = training.objective, training.plan
    return [
        f"{plan['schedule']['lr']:g}",
        f"{plan['sigma']:g}, {objective['rho1']:g}, {objective['rho2']:g}",
        str(objective.get("reduction", "paper_sum")) + ", squared" * bool(objective.get("squared")),
        str(plan["epochs"]),
        f"{float(first['loss']):.1f}",
        f"{float(last['loss']):.1f}",
        f"{100 * float(first['noisy_accuracy']):.1f}",
        f"{100 * float(last['noisy_accuracy']):.1f}",
        f"{training.settings['holdout']:,}",
        f"{100 * float(last['held_out_accuracy']):.1f}",
        "-" if run is None else f"{run.lanes([0.0])['main'].acr:.3f} ({run.draws})",
    ]

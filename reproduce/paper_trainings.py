"""The trainings behind runs, by what the zoo says: every setting that shaped the networks of a table's rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from paper_tables import ROOT, section

from ringfence.training.job import Schedule, TrainingJob

ZOO = ROOT / "zoo"
NAMES = {"lenet": "LeNet", "lenet-wide": "wide LeNet"}
ABOUT = (
    "All settings that shape the weights, as `ringfence train` has them. Noise: epochs over which sigma grew. Attacks:",
    "epochs over which an attack, or a term that follows it, grew; objectives without one are not touched by it.",
    "Clipping: of the gradient's norm. Horvath et al. (ensembles) have Nesterov's momentum, Yang et al. 2022 and Jeong",
    "and Shin's public code the plain one; that code also takes a step on each of as many parts of a batch as it has",
    "noise copies, which trainings here with batches of 256 did not.",
)


@final
@dataclass(frozen=True)
class Training:
    """Networks of the zoo, as the settings beside them say; empty where the zoo does not know them."""

    name: str
    settings: dict[str, Any]

    @property
    def plan(self) -> dict[str, Any]:
        """Objective, epochs, schedule and the rest."""
        return dict(self.settings.get("plan", {}))

    @property
    def objective(self) -> dict[str, Any]:
        """Its name and settings."""
        return dict(self.plan.get("objective", {}))

    @property
    def kind(self) -> str:
        """What the members were trained with; of a fine-tuning DRT and its base: ``drt-gaussian``."""
        base = self.objective.get("base")
        return str(self.objective.get("name", "")) + (f"-{base['name']}" if base else "")

    @property
    def architecture(self) -> str:
        """As papers write it: ResNet110."""
        arch = str(self.settings.get("arch", ""))
        return NAMES.get(arch, arch.replace("resnet", "ResNet"))

    def line(self) -> str:
        """One line that says how it was made."""
        if not self.settings:
            return f"- `{self.name}`: not in the zoo."
        return f"- `{self.name}`: {self.settings['members']} {self.settings['arch']}; {told(self.settings)}."


def told(settings: dict[str, Any]) -> str:
    """Everything that determined the weights; what older settings do not hold is what it was then."""
    job = TrainingJob.of(settings)
    last = job.seed + len(job.members) - 1
    grown = ", ".join(
        f"{name} {f'{epochs} epochs' if epochs else 'none'}"
        for name, epochs in (("noise", job.noise_warmup), ("attacks", job.attack_warmup))
    )
    images = [f"crops after {job.crop} pixels of padding"] * bool(job.crop) + ["mirror images"] * job.flip
    parts = [
        _objective(job.objective.settings()),
        f"{job.noise} noise, sigma {job.sigma:g}",
        f"{job.epochs} epochs, {_rates(job.schedule, job.epochs)}, batch {job.batch}",
        f"{'Nesterov' if job.nesterov else 'plain'} momentum {job.momentum:g}, weight decay {job.weight_decay:g}",
        f"warm-ups: {grown}",
        f"clipping {'none' if job.clip is None else f'{job.clip:g}'}",
        *([", ".join(images)] if images else []),
        *([f"averaged weights {job.ema:g}"] if job.ema else []),
        *([f"in {job.accumulate} micro-batches"] if job.accumulate > 1 else []),
        *([f"starts from `{job.init}`"] if job.init else []),
        *([f"for `{job.classifier}`"] if job.classifier else []),
        f"{job.precision}, {f'seed {job.seed}' if last == job.seed else f'seeds {job.seed} to {last}'}",
    ]
    return "; ".join(parts)


def _objective(settings: dict[str, Any]) -> str:
    """Name and settings, the base's in brackets of its own."""
    inner = ", ".join(
        f"{key} {_objective(value) if isinstance(value, dict) else value}"
        for key, value in settings.items()
        if key != "name"
    )
    return f"{settings['name']} ({inner})"


def _rates(schedule: Schedule, epochs: int) -> str:
    """The course of the learning rate."""
    if schedule.kind != "step":
        return f"lr {schedule.lr:g}, {schedule.kind}"
    return f"lr {schedule.lr:g} x {schedule.factor:g} every {schedule.every or -(-epochs // 3)}"


def read_training(zoo: Path, name: str) -> Training:
    """Its settings, if the zoo has them."""
    file = zoo / name / "config.json"
    return Training(name, json.loads(file.read_text(encoding="utf-8")) if file.exists() else {})


def how_trained(trainings: Iterable[Training], title: str = "How the networks were trained") -> list[str]:
    """A section with a line for each."""
    lines = {one.name: one.line() for one in trainings}
    return section(title, ABOUT, *([[lines[name] for name in sorted(lines)]] if lines else []))

"""TrainJob: a training as the command line describes it, small enough to send to another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from ringfence.classifiers.architectures import (
    ARCHITECTURES,
    DENOISERS,
    NORMALIZATION,
    build_architecture,
    build_denoiser,
)
from ringfence.classifiers.normalize import Normalize
from ringfence.errors import ArgumentError, ModelError
from ringfence.models import read_weights
from ringfence.models.factory import build_from_factory
from ringfence.models.normalization import Normalization, chosen_normalization, refuse_second
from ringfence.models.weights import fit_weights
from ringfence.training.objectives import Objective, build_objective
from ringfence.training.objectives.registry import OBJECTIVES
from ringfence.training.plan import TrainingPlan
from ringfence.training.schedule import Schedule

NEEDED = dict.fromkeys(("denoise-stability", "select"), "the classifier it is trained for")
NEEDED |= {name: "the classifier whose answers are its soft labels" for name, one in OBJECTIVES.items() if one.soft}
"""Objectives that need a fixed classifier, and what for."""


@final
@dataclass(frozen=True)
class TrainJob:
    """Everything a training needs, as plain values; constructing it checks all of it together.

    settings: of the objective; options: of the plan (epochs, batch, seed, ...); schedule: of the learning
    rate. init: a folder of ``final-<i>.safetensors`` to start from. classifier: spec of the fixed classifier
    that some objectives need (NEEDED). keep: export the ``last`` or the ``best`` epoch.
    """

    data: str
    out: Path
    arch: str = "lenet"
    objective: str = "gaussian"
    base: str | None = None
    members: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    schedule: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    init: Path | None = None
    classifier: str | None = None
    classes: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    holdout: int = 0
    limit: int | None = None
    keep: str = "last"
    device: str = "auto"
    devices: int = 1
    tensorboard: bool = False
    recipe: str | None = None

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ArgumentError("--members", "must be at least 1", self.members, "The papers use 3.")
        if self.keep not in ("last", "best"):
            raise ArgumentError("--keep", "must be last or best", repr(self.keep), "Use last.")
        if self.keep == "best" and not self.holdout:
            raise ArgumentError("--keep", "best needs inputs to judge by", "no --holdout", "Add --holdout 3000.")
        if (self.mean is None) != (self.std is None):
            raise ArgumentError("--mean, --std", "must be given together", "only one", "Give both.")
        if self.objective in NEEDED and self.classifier is None:
            rule = f"{self.objective} needs {NEEDED[self.objective]}"
            raise ArgumentError("--classifier", rule, "none", "Give its model spec.")
        self.plan(0, nn.Identity())
        if self.joint and self.members < 2:
            rule = f"{self.objective} trains at least two members together"
            raise ArgumentError("--members", rule, self.members, "Use --members 3.")

    @property
    def joint(self) -> bool:
        """Whether all members are one training."""
        return OBJECTIVES[self.objective].joint

    @property
    def trainings(self) -> range:
        """One training per member, named by it; a joint one has the number 0."""
        return range(1 if self.joint else self.members)

    def plan(self, member: int, classifier: nn.Module | None = None) -> TrainingPlan:
        """The plan of a member (of all, if joint); member i of an independent training has the seed + i."""
        options = dict(self.options)
        seed = int(options.pop("seed", 0)) + member
        return TrainingPlan(
            objective=self._objective(classifier), schedule=Schedule(**self.schedule), seed=seed, **options
        )

    def _objective(self, classifier: nn.Module | None) -> Objective:
        parts = {"classifier": classifier} if self.objective == "denoise-stability" else {}
        return build_objective(self.objective, self.settings, self.base, **parts)

    def described(self) -> dict[str, Any]:
        """What determines the weights, for config.json."""
        plan = self.plan(0, nn.Identity()).settings()
        return {
            "data": self.data,
            "arch": self.arch,
            "members": self.members,
            "init": None if self.init is None else str(self.init),
            "classifier": self.classifier,
            "mean": self.mean,
            "std": self.std,
            "holdout": self.holdout,
            "limit": self.limit,
            "keep": self.keep,
            "recipe": self.recipe,
            "plan": plan,
        }

    def final(self, member: int) -> Path:
        """Where a trained member ends up."""
        return self.out / f"final-{member}.safetensors"

    @property
    def finished(self) -> bool:
        """Whether every member is trained."""
        return all(self.final(i).exists() for i in range(self.members))

    def build(self, member: int, num_classes: int, channels: int = 1) -> nn.Module:
        """A fresh member, initialised from its own seed, or the trained one that --init holds."""
        seed = int(self.options.get("seed", 0)) + member
        torch.manual_seed(seed)
        if self.arch in ARCHITECTURES:
            module = build_architecture(self.arch, num_classes)
        elif self.arch in DENOISERS:
            module = build_denoiser(self.arch, channels)
        elif ":" in self.arch:
            module = build_from_factory(self.arch, num_classes)
        else:
            raise ModelError(
                "--arch",
                f"must be one of {', '.join((*ARCHITECTURES, *DENOISERS))}",
                repr(self.arch),
                "Or file.py:make.",
            )
        given: Normalization | None = None if self.mean is None or self.std is None else (self.mean, self.std)
        refuse_second(given, module, self.arch)
        normalization = given or NORMALIZATION.get(self.arch)
        if self.init is not None:
            path = self.init / f"final-{member}.safetensors"
            fitted = fit_weights(module, read_weights(path).state, str(path))
            normalization = chosen_normalization(given, fitted.stored, str(path)) or normalization
        return module if normalization is None else Normalize(module, *normalization)

"""TrainingPlan: every setting that determines the trained weights, checked as a whole before anything runs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from hashlib import blake2b
from typing import Any, Literal, final

from ringfence.errors import ArgumentError
from ringfence.training.objectives import Gaussian, Objective
from ringfence.training.schedule import Schedule

Precision = Literal["fp32", "bf16"]


@final
@dataclass(frozen=True)
class TrainingPlan:
    """What is minimised and how.

    nesterov: Nesterov's momentum or the plain one; batch: inputs per step over all devices, split into
    ``accumulate`` micro-batches; warm-ups in epochs;
    ema: decay of the averaged weights, None: none; crop, flip: augmentation on the device (pixels of padding,
    mirror); clip: largest l2 norm of the gradient, None: any; graph: replay steps as one CUDA graph;
    compile: torch.compile the members. All randomness of epoch e comes from (seed, e) alone.
    """

    objective: Objective = field(default_factory=Gaussian)
    sigma: float = 0.5
    epochs: int = 90
    batch: int = 256
    schedule: Schedule = field(default_factory=Schedule)
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-4
    noise_warmup: int = 0
    attack_warmup: int = 10
    accumulate: int = 1
    precision: Precision = "fp32"
    ema: float | None = None
    clip: float | None = None
    crop: int = 0
    flip: bool = False
    seed: int = 0
    compile: bool = False
    graph: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise ArgumentError("--sigma", "must be 0 or a positive number", self.sigma, "Give e.g. 0.5.")
        for name, value, least in (
            ("epochs", self.epochs, 1),
            ("batch", self.batch, 1),
            ("accumulate", self.accumulate, 1),
            ("noise-warmup", self.noise_warmup, 0),
            ("attack-warmup", self.attack_warmup, 0),
            ("crop", self.crop, 0),
        ):
            if value < least:
                raise ArgumentError(f"--{name}", f"must be at least {least}", value, "Correct the number.")
        if self.batch % self.accumulate:
            rule = f"must divide the batch, {self.batch}"
            raise ArgumentError("--accumulate", rule, self.accumulate, "Choose a divisor.")
        if not 0 <= self.momentum < 1 or self.weight_decay < 0:
            received = f"{self.momentum} and {self.weight_decay}"
            raise ArgumentError("--momentum, --weight-decay", "must be in [0,1) and at least 0", received, "0.9, 1e-4.")
        if self.precision not in ("fp32", "bf16"):
            raise ArgumentError("--precision", "must be fp32 or bf16", repr(self.precision), "Use fp32.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ArgumentError("--ema", "must lie between 0 and 1", self.ema, "Try 0.999, or leave it out.")
        if self.clip is not None and not self.clip > 0:
            raise ArgumentError("--clip", "must be positive", self.clip, "Leave it out.")

    def micro_batch(self, devices: int) -> int:
        """Inputs of one forward on each of so many devices."""
        return self.batch // (devices * self.accumulate)

    def settings(self) -> dict[str, Any]:
        """All of it as plain values, for config.json and the digest."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return {**own, "objective": self.objective.settings(), "schedule": asdict(self.schedule)}

    def generator_seed(self, *parts: int | str) -> int:
        """A 63-bit seed that depends on the plan's seed and these parts alone."""
        text = "|".join(map(str, (self.seed, *parts)))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

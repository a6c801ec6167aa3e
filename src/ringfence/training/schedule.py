"""Learning rates and warm-ups as pure functions of the step: nothing to store, nothing to restore."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from ringfence.settings import check_settings, setting


@final
@dataclass(frozen=True)
class Schedule:
    """Learning rate at step t of a training.

    step: lr * factor^(epoch // every), the papers' (MNIST: every 30 of 90 epochs, CIFAR-10: 50 of 150);
    every None: a third of the epochs. one-cycle: from lr/25 up to lr over the first fifth, then a cosine
    down to lr/10^4 (Smith 2018).
    """

    lr: float = setting(0.01, "Learning rate (one-cycle: its peak).", above=0, remedy="MNIST: 0.01; CIFAR-10: 0.1.")
    kind: Literal["step", "one-cycle", "constant"] = setting("step", "Course of the learning rate.", option="schedule")
    every: int | None = setting(None, "Epochs between two steps down (default: a third).", low=1, option="lr_every")
    factor: float = setting(0.1, "What each step down multiplies by.", above=0, high=1, option="lr_factor")

    def __post_init__(self) -> None:
        check_settings(self)

    def at(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        """The learning rate of a step, 0 .. epochs * steps_per_epoch - 1."""
        if self.kind == "constant":
            return self.lr
        if self.kind == "step":
            every = self.every or max(1, -(-epochs // 3))
            return self.lr * self.factor ** (step // (steps_per_epoch * every))
        total = max(1, epochs * steps_per_epoch - 1)
        rise = 0.2 * total
        if step < rise:
            return _cosine(self.lr / 25, self.lr, step / rise)
        return _cosine(self.lr, self.lr / 1e4, (step - rise) / (total - rise))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


def warmth(epoch: int, warmup: int) -> float:
    """Share in (0, 1] of a warm-up over so many epochs: (epoch + 1) / warmup, then 1."""
    return min(1.0, (epoch + 1) / warmup) if warmup > 0 else 1.0

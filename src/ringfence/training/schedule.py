"""Learning rates and warm-ups as pure functions of the step: nothing to store, nothing to restore."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from ringfence.errors import ArgumentError

Kind = Literal["step", "one-cycle", "constant"]


@final
@dataclass(frozen=True)
class Schedule:
    """Learning rate at step t of a training.

    step: lr * factor^(epoch // every), the papers' (MNIST: every 30 of 90 epochs, CIFAR-10: 50 of 150);
    every None: a third of the epochs. one-cycle: from lr/25 up to lr over the first fifth, then a cosine
    down to lr/10^4 (Smith 2018).
    """

    lr: float = 0.01
    kind: Kind = "step"
    every: int | None = None
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise ArgumentError("--lr", "must be positive", self.lr, "MNIST: 0.01; CIFAR-10: 0.1.")
        if self.kind not in ("step", "one-cycle", "constant"):
            raise ArgumentError("--schedule", "must be step, one-cycle or constant", repr(self.kind), "Use step.")
        if self.every is not None and self.every < 1:
            raise ArgumentError("--lr-every", "must be at least 1 epoch", self.every, "Leave it out.")
        if not 0 < self.factor <= 1:
            raise ArgumentError("--lr-factor", "must be above 0 and at most 1", self.factor, "The papers use 0.1.")

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

"""What a step hands to an objective: a batch of inputs with their labels, and the noise of this moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import final

import torch
from torch import Tensor

from ringfence.noise import Gaussian, Noise


@final
@dataclass(frozen=True)
class Batch:
    """Inputs x (B, *shape) in [0, 1], labels y (B,) int64, and soft labels (B, K) for objectives that ask for them."""

    x: Tensor
    y: Tensor
    soft: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def under(self, draws: Tensor) -> Tensor:
        """The inputs under draws (m, B, *shape) as rows (m*B, *shape), copies outermost."""
        return rows(self.x, draws)

    def labels(self, copies: int) -> Tensor:
        """The labels of those rows: (m*B,)."""
        return self.y.repeat(copies)

    def copied(self, copies: int) -> Tensor:
        """The inputs of those rows without the noise: (m*B, *shape)."""
        return self.x.repeat(copies, *[1] * (self.x.dim() - 1))


def rows(x: Tensor, draws: Tensor) -> Tensor:
    """x (B, *shape) under draws (m, B, *shape) as one batch (m*B, *shape), copies outermost."""
    return (x + draws).flatten(0, 1)


def _one() -> Tensor:
    return torch.ones(())


@final
@dataclass(frozen=True)
class TrainingNoise:
    """Noise of standard deviation sigma * reached, of the family of ``unit``, whose own scale is 1.

    reached, attack: 0-dimensional tensors on the device, shares in [0, 1] of the noise and attack warm-up; as
    tensors they can change without waiting for the device.
    """

    sigma: float
    reached: Tensor = field(default_factory=_one)
    attack: Tensor = field(default_factory=_one)
    unit: Noise = field(default_factory=partial(Gaussian, 1.0))

    def draw(self, batch: Batch, copies: int, generator: torch.Generator) -> Tensor:
        """Independent draws (m, B, *shape) for the inputs of a batch, float32."""
        return self.unit.standard((copies, *batch.x.shape), generator) * (self.sigma * self.reached)

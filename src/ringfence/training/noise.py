"""Noise while training: drawn from the step's generator, scaled by how far the warm-up is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor


def _one() -> Tensor:
    return torch.ones(())


@final
@dataclass(frozen=True)
class TrainingNoise:
    """Gaussian noise of standard deviation sigma * reached.

    reached, attack: 0-dimensional tensors on the device, shares in [0, 1] of the noise and attack warm-up; as
    tensors they can change without waiting for the device.
    """

    sigma: float
    reached: Tensor = field(default_factory=_one)
    attack: Tensor = field(default_factory=_one)

    def draw(self, x: Tensor, copies: int, generator: torch.Generator) -> Tensor:
        """Independent draws (copies, B, *shape) for the batch x (B, *shape), float32."""
        noise = torch.randn((copies, *x.shape), generator=generator, device=x.device)
        return noise * (self.sigma * self.reached)

"""Gaussian augmentation: cross-entropy on noisy inputs (Cohen et al. 2019, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import nn

from ringfence.training.batch import Batch, TrainingNoise
from ringfence.training.objectives.base import LossTerms, SingleObjective, noise_copies
from ringfence.training.objectives.formulas import plain_loss


@final
@dataclass(frozen=True)
class Gaussian(SingleObjective):
    """mean over inputs and m copies of -log softmax(f(x + e))_y; Yang et al. 2022 augment twice."""

    copies: int = noise_copies(2)
    name: ClassVar[str] = "gaussian"

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Cross-entropy at x + e_i, i = 1..m."""
        scores = member(batch.under(noise.draw(batch, self.copies, generator)))
        return plain_loss(scores, batch.labels(self.copies))

"""Gaussian augmentation: cross-entropy on noisy inputs (Cohen et al. 2019, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    check_copies,
    repeated,
    rows,
    share_right,
)


@final
@dataclass(frozen=True)
class Gaussian(SingleObjective):
    """mean over inputs and m copies of -log softmax(f(x + e))_y; Yang et al. 2022 augment twice."""

    copies: int = 2
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        check_copies(self.copies)

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """Cross-entropy at x + e_i, i = 1..m."""
        scores, labels = member(rows(x, noise.draw(x, self.copies, generator))), repeated(y, self.copies)
        return LossTerms({"cross_entropy": cross_entropy(scores, labels)}, share_right(scores, labels))

"""Consistency regularisation (Jeong and Shin 2020): noisy copies of one input should agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.attacks import log_mean_softmax
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    check_copies,
    check_weight,
    entropy,
    repeated,
    rows,
    share_right,
)


@final
@dataclass(frozen=True)
class Consistency(SingleObjective):
    """mean_i CE_i + lambda * mean_i KL(fbar || f_i) + eta * H(fbar), fbar the mean softmax over m copies.

    CIFAR-10: weight (lambda) 20 at sigma .25, else 10; eta .5. ImageNet: 5 and .1 (.5 at sigma .25).
    """

    weight: float = 10.0
    eta: float = 0.5
    copies: int = 2
    name: ClassVar[str] = "consistency"

    def __post_init__(self) -> None:
        check_weight("weight", self.weight)
        check_weight("eta", self.eta)
        check_copies(self.copies)

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """All three terms from one forward of m copies."""
        scores, labels = member(rows(x, noise.draw(x, self.copies, generator))), repeated(y, self.copies)
        each = torch.log_softmax(scores.float(), -1).view(self.copies, len(x), -1)
        mean = log_mean_softmax(scores, self.copies)
        divergence = (mean.exp() * (mean - each)).sum(-1).mean()
        terms = {
            "cross_entropy": cross_entropy(scores, labels),
            "consistency": self.weight * divergence,
            "entropy": self.eta * entropy(mean).mean(),
        }
        return LossTerms(terms, share_right(scores, labels))

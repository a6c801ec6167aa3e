"""Stability training (Li et al. 2019): the noisy prediction should stay with the clean one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    check_copies,
    check_weight,
    repeated,
    rows,
    share_right,
)


@final
@dataclass(frozen=True)
class Stability(SingleObjective):
    """CE(f(x), y) + lambda * D(f(x), f(x + e)), D the cross-entropy or the Renyi divergence of order 2.

    With p the clean and q the noisy softmax: cross-entropy -sum p log q, Renyi log sum p^2/q. Gradients flow
    through both; lambda (weight) 2.
    """

    weight: float = 2.0
    divergence: Literal["cross-entropy", "renyi"] = "cross-entropy"
    copies: int = 1
    name: ClassVar[str] = "stability"

    def __post_init__(self) -> None:
        check_weight("weight", self.weight)
        check_copies(self.copies)
        if self.divergence not in ("cross-entropy", "renyi"):
            rule = "must be cross-entropy or renyi"
            raise ArgumentError("divergence", rule, repr(self.divergence), "Use cross-entropy.")

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """Clean and noisy forward; the divergence is averaged over m copies."""
        clean = member(x)
        noisy = member(rows(x, noise.draw(x, self.copies, generator)))
        log_p = torch.log_softmax(clean.float(), -1)
        log_q = torch.log_softmax(noisy.float(), -1).view(self.copies, len(x), -1)
        if self.divergence == "renyi":
            distance = torch.logsumexp(2 * log_p - log_q, -1).mean()
        else:
            distance = -(log_p.exp() * log_q).sum(-1).mean()
        terms = {"cross_entropy": cross_entropy(clean, y), "stability": self.weight * distance}
        return LossTerms(terms, share_right(noisy, repeated(y, self.copies)))

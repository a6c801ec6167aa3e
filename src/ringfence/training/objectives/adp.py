"""Adaptive diversity promoting training of ensembles (Pang et al. 2019; adapted to noise in Yang et al. 2022, G.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    Members,
    Objective,
    check_copies,
    check_weight,
    entropy,
    repeated,
    rows,
)

OFFSET = 1e-6
"""Added to the Gram matrix's diagonal: members that agree span no volume, and log 0 has no gradient."""


@final
@dataclass(frozen=True)
class Adp(Objective):
    """sum_i CE_i - alpha * N * H(mean prediction) - beta * log(squared volume of the non-true predictions).

    The volume is that spanned by the members' softmax vectors without the true class, each at length 1. Both
    terms are rewards (Yang et al. 2022 print a plus). Yang et al. do not give the weights: the defaults
    are ours, a quarter and a fifth of Pang et al.'s 2 and 0.5 because the entropy is counted N times here.
    """

    alpha: float = 0.5
    beta: float = 0.1
    copies: int = 2
    name: ClassVar[str] = "adp"
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight("alpha", self.alpha)
        check_weight("beta", self.beta)
        check_copies(self.copies)

    def loss(
        self,
        members: Members,
        x: Tensor,
        y: Tensor,
        noise: TrainingNoise,
        generator: torch.Generator,
        soft: Tensor | None = None,
    ) -> LossTerms:
        """All members on the same noise."""
        noisy, labels = rows(x, noise.draw(x, self.copies, generator)), repeated(y, self.copies)
        scores = [member(noisy) for member in members]
        logs = torch.stack([torch.log_softmax(one.float(), -1) for one in scores], dim=1)  # (rows, N, K)
        mean = torch.logsumexp(logs, 1) - math.log(len(members))
        volume = log_squared_volume(logs.exp(), labels).mean()
        terms = {
            "cross_entropy": torch.stack([cross_entropy(one, labels) for one in scores]).sum(),
            "entropy": -self.alpha * len(members) * entropy(mean).mean(),
            "volume": -self.beta * volume,
        }
        right = torch.stack([(one.detach().argmax(1) == labels).float().mean() for one in scores])
        return LossTerms(terms, right.mean())


def log_squared_volume(shares: Tensor, y: Tensor) -> Tensor:
    """log det(M M^T + offset I) per row, M (N, K) the predictions (rows, N, K) with y zeroed, each at length 1."""
    others = shares.scatter(2, y.view(-1, 1, 1).expand(-1, shares.shape[1], 1), 0.0)
    unit = others / others.square().sum(-1, keepdim=True).add(1e-20).sqrt()
    gram = unit @ unit.transpose(1, 2) + OFFSET * torch.eye(shares.shape[1], device=shares.device)
    return log_determinant(gram)


def log_determinant(matrix: Tensor) -> Tensor:
    """log det of small positive definite matrices (rows, N, N) by elimination, without waiting for the device."""
    total = torch.zeros_like(matrix[:, 0, 0])
    while matrix.shape[1]:
        pivot = matrix[:, 0, 0].clamp_min(1e-12)
        total = total + pivot.log()
        matrix = matrix[:, 1:, 1:] - matrix[:, 1:, :1] * matrix[:, :1, 1:] / pivot.view(-1, 1, 1)
    return total

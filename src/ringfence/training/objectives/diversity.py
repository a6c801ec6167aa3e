"""Two older ways to make members differ, adapted to noise (Yang et al. 2022, appendix G.4): ADP and GAL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ringfence.training.batch import Batch, TrainingNoise
from ringfence.training.objectives.base import Grouping, LossTerms, Members, Objective, noise_copies, penalty
from ringfence.training.objectives.formulas import eager, entropy, safe_norm, share_right
from ringfence.training.objectives.second_order import SecondOrder

OFFSET = 1e-6
"""Added to the Gram matrix's diagonal: members that agree span no volume, and log 0 has no gradient."""


@final
@dataclass(frozen=True)
class Adp(Objective):
    """sum_i CE_i - alpha * N * H(mean prediction) - beta * log(squared volume of the non-true predictions).

    Pang et al. 2019. The volume is that spanned by the members' softmax vectors without the true class, each at
    length 1. Both terms are rewards. Yang et al. (who print a plus) give no weights: the defaults are ours, a quarter
    and a fifth of Pang et al.'s 2 and 0.5 because the entropy is counted N times here.
    """

    alpha: float = penalty(0.5, "Weight of the entropy of the mean prediction.")
    beta: float = penalty(0.1, "Weight of the volume that predictions span.")
    copies: int = noise_copies(2)
    name: ClassVar[str] = "adp"

    @property
    def grouping(self) -> Grouping:
        """All members at once."""
        return "together"

    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """All members on the same noise."""
        noisy, labels = batch.under(noise.draw(batch, self.copies, generator)), batch.labels(self.copies)
        scores = [member(noisy) for member in members]
        logs = torch.stack([torch.log_softmax(one.float(), -1) for one in scores], dim=1)  # (rows, N, K)
        mean = torch.logsumexp(logs, 1) - math.log(len(members))
        volume = log_squared_volume(logs.exp(), labels).mean()
        terms = {
            "cross_entropy": torch.stack([cross_entropy(one, labels) for one in scores]).sum(),
            "entropy": -self.alpha * len(members) * entropy(mean).mean(),
            "volume": -self.beta * volume,
        }
        return LossTerms(terms, torch.stack([share_right(one, labels) for one in scores]).mean())


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


@final
@dataclass(frozen=True)
class Gal(Objective):
    """sum_i CE_i + weight * log sum_{i<j} exp(cos(grad_x CE_i, grad_x CE_j)), averaged over noisy inputs.

    Kariyappa and Qureshi 2019, whose weight is 0.5; Yang et al. give none.
    """

    weight: float = penalty(0.5, "Weight of the alignment of gradients.")
    copies: int = noise_copies(2)
    name: ClassVar[str] = "gal"

    @property
    def grouping(self) -> Grouping:
        """All members at once."""
        return "together"

    def loss(self, members: Members, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """All members on the same noise; a vanishing gradient counts as cosine 0."""
        noisy, labels = batch.under(noise.draw(batch, self.copies, generator)), batch.labels(self.copies)
        noisy.requires_grad_()
        losses, gradients, right = [], [], []
        for member in members:
            with SecondOrder(fused=eager(member) is not member) as second:
                scores = eager(member)(noisy)
            each = cross_entropy(scores, labels, reduction="none")
            gradients.append(second.gradient(each.sum(), noisy))
            losses.append(each.mean())
            right.append(share_right(scores, labels))
        cosines = torch.stack([cosine(gradients[i], gradients[j]) for i, j in combinations(range(len(members)), 2)])
        terms = {
            "cross_entropy": torch.stack(losses).sum(),
            "alignment": self.weight * torch.logsumexp(cosines, 0).mean(),
        }
        return LossTerms(terms, torch.stack(right).mean())


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine (B,) of the angle between (B, *shape) and (B, *shape); 0 where either vanishes."""
    product = safe_norm(a) * safe_norm(b)
    there = product > 1e-20
    return torch.where(there, (a * b).flatten(1).sum(1) / torch.where(there, product, 1.0), 0.0)

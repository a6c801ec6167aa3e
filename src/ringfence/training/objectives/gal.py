"""Gradient alignment loss for ensembles (Kariyappa and Qureshi 2019; adapted to noise in Yang et al. 2022, G.4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
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
    eager,
    repeated,
    rows,
    safe_norm,
)
from ringfence.training.objectives.second_order import SecondOrder


@final
@dataclass(frozen=True)
class Gal(Objective):
    """sum_i CE_i + weight * log sum_{i<j} exp(cos(grad_x CE_i, grad_x CE_j)), averaged over noisy inputs.

    The weight is not given by Yang et al. 2022: Kariyappa and Qureshi use 0.5.
    """

    weight: float = 0.5
    copies: int = 2
    name: ClassVar[str] = "gal"
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight("weight", self.weight)
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
        """All members on the same noise; a vanishing gradient counts as cosine 0."""
        noisy, labels = rows(x, noise.draw(x, self.copies, generator)).requires_grad_(), repeated(y, self.copies)
        losses, gradients, right = [], [], []
        for member in members:
            with SecondOrder() as second:
                scores = eager(member)(noisy)
            each = cross_entropy(scores, labels, reduction="none")
            gradients.append(second.gradient(each.sum(), noisy))
            losses.append(each.mean())
            right.append((scores.detach().argmax(1) == labels).float().mean())
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

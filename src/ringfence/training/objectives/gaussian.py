"""Gaussian augmentation, and predictions under noise that should agree: with each other, or with the clean one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from ringfence.attacks import log_mean_softmax
from ringfence.settings import setting
from ringfence.training.batch import Batch, TrainingNoise
from ringfence.training.objectives.base import LossTerms, SingleObjective, noise_copies, penalty
from ringfence.training.objectives.formulas import entropy, plain_loss, share_right


@final
@dataclass(frozen=True)
class Gaussian(SingleObjective):
    """mean over inputs and m copies of -log softmax(f(x + e))_y (Cohen et al. 2019, section 3.3).

    Yang et al. 2022 augment twice.
    """

    copies: int = noise_copies(2)
    name: ClassVar[str] = "gaussian"

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Cross-entropy at x + e_i, i = 1..m."""
        scores = member(batch.under(noise.draw(batch, self.copies, generator)))
        return plain_loss(scores, batch.labels(self.copies))


@final
@dataclass(frozen=True)
class Consistency(SingleObjective):
    """mean_i CE_i + lambda * mean_i KL(fbar || f_i) + eta * H(fbar), fbar the mean softmax over m copies.

    Jeong and Shin 2020. CIFAR-10: weight (lambda) 20 at sigma .25, else 10; eta .5. ImageNet: 5 and .1 (.5 at .25).
    """

    weight: float = penalty(10.0, "Weight of the divergence between copies.")
    eta: float = penalty(0.5, "Weight of the entropy of the mean prediction.")
    copies: int = noise_copies(2)
    name: ClassVar[str] = "consistency"

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """All three terms from one forward of m copies."""
        scores = member(batch.under(noise.draw(batch, self.copies, generator)))
        each = torch.log_softmax(scores.float(), -1).view(self.copies, len(batch), -1)
        mean = log_mean_softmax(scores, self.copies)
        divergence = self.weight * (mean.exp() * (mean - each)).sum(-1).mean()
        spread = self.eta * entropy(mean).mean()
        return plain_loss(scores, batch.labels(self.copies), consistency=divergence, entropy=spread)


@final
@dataclass(frozen=True)
class Stability(SingleObjective):
    """CE(f(x), y) + lambda * D(f(x), f(x + e)), D the cross-entropy or the Renyi divergence of order 2.

    Li et al. 2019. With p the clean and q the noisy softmax: cross-entropy -sum p log q, Renyi log sum p^2/q.
    Gradients flow through both; lambda (weight) 2.
    """

    weight: float = penalty(2.0, "Weight of the distance between the noisy and the clean prediction.")
    divergence: Literal["cross-entropy", "renyi"] = setting("cross-entropy", "How that distance is measured.")
    copies: int = noise_copies(1)
    name: ClassVar[str] = "stability"

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Clean and noisy forward; the divergence is averaged over m copies."""
        clean = member(batch.x)
        noisy = member(batch.under(noise.draw(batch, self.copies, generator)))
        log_p = torch.log_softmax(clean.float(), -1)
        log_q = torch.log_softmax(noisy.float(), -1).view(self.copies, len(batch), -1)
        if self.divergence == "renyi":
            distance = torch.logsumexp(2 * log_p - log_q, -1).mean()
        else:
            distance = -(log_p.exp() * log_q).sum(-1).mean()
        terms = {"cross_entropy": cross_entropy(clean, batch.y), "stability": self.weight * distance}
        return LossTerms(terms, share_right(noisy, batch.labels(self.copies)))

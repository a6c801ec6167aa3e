"""Training on noise alone: Gaussian augmentation, predictions that should agree, and the certified radius (MACER)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.special import ndtri

from ringfence.attacks import log_mean_softmax
from ringfence.settings import setting
from ringfence.training.data import Batch, TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    Objective,
    SingleObjective,
    entropy,
    noise_copies,
    penalty,
    plain_loss,
    share_right,
)


@final
@dataclass(frozen=True)
class NoiseAugmentation(SingleObjective):
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


@final
@dataclass(frozen=True)
class Macer(SingleObjective):
    """-log zbar_y + lambda * sigma/2 * max(gamma - gap, 0) / B, gap = PhiInv(z_y) - PhiInv(max_{k != y} z_k).

    z = mean softmax(beta * f) over m copies, zbar the same with beta = 1; the second term counts only inputs
    that are right under z with |gap| <= gamma and finite, and is divided by the full batch.
    CIFAR-10 (Zhai et al., table 5): weight (lambda) 12 (4 at sigma .5), gamma 8, beta 16, m 16. lambda follows
    the attack warm-up: an untrained network would else be pulled into one constant class, whose gap does not
    count any more. deferred: epochs without the second term altogether, as in the sources (50 at sigma 1).
    """

    weight: float = penalty(12.0, "Weight of the radius.")
    gamma: float = penalty(8.0, "Largest gap that counts.")
    beta: float = penalty(16.0, "Inverse temperature of the softmax behind the radius.")
    copies: int = noise_copies(16)
    deferred: int = setting(0, "Epochs without the radius.", low=0, remedy="Zhai et al. use 50 at sigma 1.")
    name: ClassVar[str] = "macer"
    noises: ClassVar[tuple[str, ...]] = ("gaussian",)

    def at(self, epoch: int) -> Objective:
        """Without the second term while it is deferred."""
        return replace(self, weight=0.0) if epoch < self.deferred else self

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Classification loss of the soft smoothed classifier plus the hinge on its radius."""
        scores = member(batch.under(noise.draw(batch, self.copies, generator)))
        label = batch.y.unsqueeze(1)
        classification = -log_mean_softmax(scores, self.copies).gather(1, label).mean()
        z = torch.softmax(self.beta * scores.float(), -1).view(self.copies, len(batch), -1).mean(0)
        own, rival = z.gather(1, label).squeeze(1), z.scatter(1, label, -1.0).amax(1)
        with torch.no_grad():
            gap = ndtri(own) - ndtri(rival)
            counts = (own > rival) & gap.isfinite() & (gap.abs() <= self.gamma)
        # A half where nothing counts: ndtri has an infinite slope at 0 and 1, and 0 times that is NaN.
        own, rival = torch.where(counts, own, 0.5), torch.where(counts, rival, 0.5)
        hinge = (self.gamma - (ndtri(own) - ndtri(rival))).clamp_min(0)
        radius = torch.where(counts, hinge, 0.0).sum() / len(batch)
        terms = {"cross_entropy": classification, "radius": noise.attack * self.weight * noise.sigma / 2 * radius}
        return LossTerms(terms, share_right(scores, batch.labels(self.copies)))

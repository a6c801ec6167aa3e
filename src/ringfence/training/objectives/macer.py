"""MACER: maximise the certified radius of a soft smoothed classifier (Zhai et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import nn
from torch.special import ndtri

from ringfence.attacks import log_mean_softmax
from ringfence.settings import setting
from ringfence.training.batch import Batch, TrainingNoise
from ringfence.training.objectives.base import LossTerms, Objective, SingleObjective, noise_copies, penalty
from ringfence.training.objectives.formulas import share_right


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

"""Training by how sure a network is of an input, on noise that is attacked: CAT-RS and reweighting.

Both turn the noise of inputs that are mostly right against the network; CAT-RS keeps the others with their easiest
copies, reweighting drops them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.special import ndtri

from ringfence.attacks import into_l2_ball, norms, unit
from ringfence.errors import ArgumentError, DataError
from ringfence.settings import setting
from ringfence.stats.binomial import clopper_pearson_lower
from ringfence.training.data import Batch, DeviceData, TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    Objective,
    Questions,
    SingleObjective,
    evaluating,
    noise_copies,
    penalty,
    plain_loss,
    share_right,
    wide,
)
from ringfence.training.objectives.gaussian import NoiseAugmentation
from ringfence.types import IntArray

DROP_DRAWS, WEIGHT_DRAWS = 100, 16
"""Noisy copies by which an input is dropped, and by which it is weighted."""
LEAST_SHARE, LEVEL = 0.75, 0.1
"""Shares of right answers below the first count as it; weights come from a lower bound that fails so often."""


@final
@dataclass(frozen=True)
class Catrs(SingleObjective):
    """mean over inputs of low + lambda * high (Jeong, Kim and Shin 2023).

    low: the K smallest of the m cross-entropies, summed and divided by m; K ~ Binomial(m, share of the m copies that
    are right), at least 1. high, where K = m: the largest of KL(q || f(x + e'_i)), q the soft label of the input, e'
    the noises attacked within an l2 ball of radius ``eps``. The soft label holds the class shares of ``label_draws``
    draws of a network trained with Gaussian noise, at ``label_sigma`` whatever the sigma now trained for.
    CIFAR-10: lambda (weight) .5/1/2 at sigma .25/.5/1, m 4, eps 1, 4 steps.
    """

    weight: float = penalty(1.0, "Weight of the worst attacked copy.")
    eps: float = setting(1.0, "Radius of the attack.", above=0)
    steps: int = setting(4, "Steps of the attack.", low=1)
    copies: int = noise_copies(4)
    label_sigma: float = setting(0.25, "Noise behind the soft labels.", low=0, remedy="Jeong et al. use 0.25.")
    label_draws: int = setting(10_000, "Draws behind each soft label.", low=1, remedy="Jeong et al. use 10000.")
    name: ClassVar[str] = "catrs"
    classifier_for: ClassVar[str] = "whose answers are its soft labels"

    def questions(self, sigma: float) -> Questions:
        """The class shares of every input, whatever sigma is trained for."""
        return Questions(self.label_sigma, self.label_draws, every_class=True)

    def labelled(self, data: DeviceData, votes: IntArray) -> DeviceData:
        """With the class shares as soft labels; invalid scores are no class, and leave the rest."""
        counted = torch.from_numpy(votes).to(data.x.dtype)
        return replace(data, soft=counted / counted.sum(1, keepdim=True).clamp_min(1))

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Both parts for one network."""
        if batch.soft is None:
            rule = f"{self.name} needs one row of class shares per input"
            raise DataError("soft", rule, "none", "Name the classifier that gives them.")
        draws = noise.draw(batch, self.copies, generator)
        scores, labels = member(batch.under(draws)), batch.labels(self.copies)
        right = (scores.detach().argmax(1) == labels).view(self.copies, -1)
        tried = torch.rand(right.shape, generator=generator, device=batch.x.device)
        chosen = (tried < right.to(tried.dtype).mean(0)).sum(0).clamp_min(1)  # K of each input
        each = cross_entropy(scores, labels, reduction="none").view(self.copies, -1).sort(0).values
        ranks = torch.arange(self.copies, device=batch.x.device).unsqueeze(1)
        low = torch.where(ranks < chosen, each, 0.0).sum(0) / self.copies
        attacked = member(batch.under(self.turned(member, batch, batch.soft, draws)))
        worst = self.divergence(attacked, batch.soft).amax(0)
        high = torch.where(chosen == self.copies, worst, 0.0)
        terms = {"low": low.mean(), "high": self.weight * high.mean()}
        return LossTerms(terms, share_right(scores, labels))

    def divergence(self, scores: Tensor, soft: Tensor) -> Tensor:
        """KL(q || softmax) of every copy: (m*B, K) and (B, K) -> (m, B)."""
        logs = torch.log_softmax(scores.float(), -1).view(self.copies, *soft.shape)
        distances: Tensor = (torch.special.xlogy(soft, soft) - soft * logs).sum(-1)
        return distances

    def turned(self, member: nn.Module, batch: Batch, soft: Tensor, draws: Tensor) -> Tensor:
        """The noises (m, B, *shape), attacked: steps of 2 eps / T in the ball, each at the noise's mean and size."""
        inputs, start = batch.copied(self.copies), draws.flatten(0, 1)
        now = start
        with evaluating(member) as frozen, torch.enable_grad():
            for _ in range(self.steps):
                now = now.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(self.divergence(frozen(inputs + now), soft).sum(), now)
                away = now.detach() + 2 * self.eps / self.steps * unit(gradient) - start
                now = _shaped(start + into_l2_ball(away, self.eps), start)
        return now.detach().view_as(draws)


def _shaped(noise: Tensor, like: Tensor) -> Tensor:
    """Noise (B, *shape) less its mean, at the length and with the mean that ``like`` has; of each row by itself."""

    def mean(rows: Tensor) -> Tensor:
        return wide(rows.flatten(1).mean(1), rows)

    return mean(like) + (noise - mean(noise)) * (norms(like) / norms(noise).clamp_min(1e-12))


@final
@dataclass(frozen=True)
class Reweight(SingleObjective):
    """Cross-entropy at x + e'_i, e'_i the noise e_i turned against the network at its own length (Sun et al. 2025).

    Until epoch ``begin`` Gaussian training. Then inputs that are right under fewer than ``least`` of 100 draws are
    dropped for good, and every ``every`` epochs the others get the weight PhiInv(lower bound of p), p the share of 16
    draws that are right, at least .75: inputs are drawn in proportion. e': T steps of length ``step`` along the unit
    gradient of the cross-entropy, each brought back to the noise's own length; the first noise that is answered
    wrongly, e itself included, else the last. CIFAR-10, sigma .25/.5/1: begin 60/70/60, least .5/.4/.4, T 3/6/4,
    step .25/.25/.5. Average certified radius rewards what this does: it gives up hard inputs.
    """

    begin: int = setting(60, "Epochs of Gaussian training before it.", low=0)
    least: float = setting(0.5, "Share of right answers below which an input is dropped.", low=0, high=1)
    every: int = setting(10, "Epochs between two weightings of the inputs.", low=1)
    steps: int = setting(3, "Steps of the attack.", low=1)
    step: float = setting(0.25, "Length of a step of the attack.", above=0)
    copies: int = noise_copies(4)
    name: ClassVar[str] = "reweight"

    def at(self, epoch: int) -> Objective:
        """Gaussian training first."""
        return self if epoch >= self.begin else NoiseAugmentation(self.copies)

    def weights(self, epoch: int, before: Tensor | None, right: Callable[[int], Tensor]) -> Tensor | None:
        """Of the inputs that are left; 0 for those that were dropped."""
        if epoch < self.begin:
            return None
        if before is not None and (epoch - self.begin) % self.every:
            return before
        kept = right(DROP_DRAWS) >= self.least if before is None else before > 0
        if not kept.any():
            rule = "must leave inputs to train on"
            raise ArgumentError("least", rule, f"{self.least}, which none reaches", "Lower it, or begin later.")
        # Whole draws, as the authors' code has it: a share within [.75, 1] of 16.
        hits = (right(WEIGHT_DRAWS).clamp(LEAST_SHARE, 1.0) * WEIGHT_DRAWS).round()
        table = torch.from_numpy(clopper_pearson_lower(range(WEIGHT_DRAWS + 1), WEIGHT_DRAWS, LEVEL))
        radius = ndtri(table).to(hits.device, torch.get_default_dtype())[hits.long()]
        return torch.where(kept, radius, 0.0)

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Cross-entropy at the attacked noises."""
        draws = self.turned(member, batch, noise.draw(batch, self.copies, generator))
        return plain_loss(member(batch.under(draws)), batch.labels(self.copies))

    def turned(self, member: nn.Module, batch: Batch, draws: Tensor) -> Tensor:
        """e' (m, B, *shape) of the draws e (m, B, *shape)."""
        labels, inputs, now = batch.labels(self.copies), batch.copied(self.copies), draws.flatten(0, 1)
        length, kept = norms(now), now
        found = torch.zeros_like(labels, dtype=torch.bool)
        with evaluating(member) as frozen, torch.enable_grad():
            for _ in range(self.steps):
                now = now.detach().requires_grad_()
                scores = frozen(inputs + now)
                (gradient,) = torch.autograd.grad(cross_entropy(scores, labels, reduction="sum"), now)
                wrong = scores.detach().argmax(1) != labels
                kept = torch.where(wide(wrong & ~found, now), now.detach(), kept)
                found = found | wrong
                moved = now.detach() + self.step * unit(gradient)
                now = moved * (length / norms(moved).clamp_min(1e-12))
        return torch.where(wide(found, now), kept, now).view_as(draws)

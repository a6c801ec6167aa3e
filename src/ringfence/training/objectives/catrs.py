"""CAT-RS (Jeong, Kim and Shin 2023): confidence-aware training, by how many noisy copies are answered rightly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.attacks import check_attack, norms, unit
from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    Members,
    Objective,
    check_copies,
    check_weight,
    evaluating,
    repeated,
    rows,
    share_right,
    summed,
)


@final
@dataclass(frozen=True)
class Catrs(Objective):
    """mean over inputs of low + lambda * high.

    low: the K smallest of the m cross-entropies, summed and divided by m; K ~ Binomial(m, share of the m copies that
    are right), at least 1. high, where K = m: the largest of KL(q || f(x + e'_i)), q the soft label of the input, e'
    the noises attacked within an l2 ball of radius ``eps``. The soft label holds the class shares of ``label_draws``
    draws of a network trained with Gaussian noise, at ``label_sigma`` whatever the sigma now trained for.
    CIFAR-10: lambda (weight) .5/1/2 at sigma .25/.5/1, m 4, eps 1, 4 steps.
    """

    weight: float = 1.0
    eps: float = 1.0
    steps: int = 4
    copies: int = 4
    label_sigma: float = 0.25
    label_draws: int = 10_000
    name: ClassVar[str] = "catrs"
    soft: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight("weight", self.weight)
        check_attack(self.eps, self.steps)
        check_copies(self.copies)
        if self.label_draws < 1 or not 0 <= self.label_sigma < float("inf"):
            received = (self.label_sigma, self.label_draws)
            rule = "must be at least 0 and at least 1"
            raise ArgumentError("label_sigma, label_draws", rule, received, "Jeong et al. use 0.25 and 10000.")

    def loss(
        self,
        members: Members,
        x: Tensor,
        y: Tensor,
        noise: TrainingNoise,
        generator: torch.Generator,
        soft: Tensor | None = None,
    ) -> LossTerms:
        """Sum over the members."""
        assert soft is not None
        return summed([self.loss_of(member, x, y, soft, noise, generator) for member in members])

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, soft: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """Both parts for one network."""
        draws = noise.draw(x, self.copies, generator)
        scores, labels = member(rows(x, draws)), repeated(y, self.copies)
        right = (scores.detach().argmax(1) == labels).view(self.copies, -1)
        tried = torch.rand(right.shape, generator=generator, device=x.device)
        chosen = (tried < right.to(tried.dtype).mean(0)).sum(0).clamp_min(1)  # K of each input
        each = cross_entropy(scores, labels, reduction="none").view(self.copies, -1).sort(0).values
        ranks = torch.arange(self.copies, device=x.device).unsqueeze(1)
        low = torch.where(ranks < chosen, each, 0.0).sum(0) / self.copies
        attacked = member(rows(x, self.turned(member, x, soft, draws)))
        worst = self.divergence(attacked, soft).amax(0)
        high = torch.where(chosen == self.copies, worst, 0.0)
        terms = {"low": low.mean(), "high": self.weight * high.mean()}
        return LossTerms(terms, share_right(scores, labels))

    def divergence(self, scores: Tensor, soft: Tensor) -> Tensor:
        """KL(q || softmax) of every copy: (m*B, K) and (B, K) -> (m, B)."""
        logs = torch.log_softmax(scores.float(), -1).view(self.copies, *soft.shape)
        distances: Tensor = (torch.special.xlogy(soft, soft) - soft * logs).sum(-1)
        return distances

    def turned(self, member: nn.Module, x: Tensor, soft: Tensor, draws: Tensor) -> Tensor:
        """The noises (m, B, *shape), attacked: steps of 2 eps / T in the ball, each at the noise's mean and size."""
        inputs, start = x.repeat(self.copies, *[1] * (x.dim() - 1)), draws.flatten(0, 1)
        now = start
        with evaluating(member) as frozen, torch.enable_grad():
            for _ in range(self.steps):
                now = now.detach().requires_grad_()
                (gradient,) = torch.autograd.grad(self.divergence(frozen(inputs + now), soft).sum(), now)
                away = now.detach() + 2 * self.eps / self.steps * unit(gradient) - start
                now = _shaped(start + away * (self.eps / norms(away).clamp_min(1e-12)).clamp_max(1.0), start)
        return now.detach().view_as(draws)


def _shaped(noise: Tensor, like: Tensor) -> Tensor:
    """Noise (B, *shape) less its mean, at the length and with the mean that ``like`` has; of each row by itself."""

    def mean(rows: Tensor) -> Tensor:
        return rows.flatten(1).mean(1).view(-1, *[1] * (rows.dim() - 1))

    return mean(like) + (noise - mean(noise)) * (norms(like) / norms(noise).clamp_min(1e-12))

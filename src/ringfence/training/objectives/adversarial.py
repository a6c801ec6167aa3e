"""Adversarial inputs of the smoothed classifier: trained on (SmoothAdv), or mixed with the inputs (SmoothMix)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from ringfence.attacks import ATTACKS, gradient_of_loss, into_l2_ball, log_mean_softmax, unit
from ringfence.errors import ArgumentError
from ringfence.settings import setting
from ringfence.training.data import Batch, TrainingNoise, rows
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    evaluating,
    noise_copies,
    penalty,
    plain_loss,
    wide,
)


@final
@dataclass(frozen=True)
class SmoothAdv(SingleObjective):
    """Cross-entropy at x' + e_i, where x' maximises -log mean_i softmax(f(x' + e_i))_y within a ball.

    Salman et al. 2019. The m draws stay fixed during the attack and are used again in the loss. eps follows the attack
    warm-up. The ball is of l2, with pgd-l1 of l1. T = 10, m = 2; eps 1.0 (Yang et al. 2022), 512/255 (Horvath et al.
    2022, CIFAR-10, sigma 1).
    """

    eps: float = setting(1.0, "Radius of the attack.", above=0)
    steps: int = setting(10, "Steps of the attack.", low=1)
    copies: int = noise_copies(2)
    attack: Literal["pgd", "ddn", "pgd-l1"] = setting("pgd", "Which attack.")
    name: ClassVar[str] = "smoothadv"

    def attacked(self, member: nn.Module, batch: Batch, draws: Tensor, share: Tensor) -> Tensor:
        """x' (B, *shape) under the fixed draws (m, B, *shape)."""
        with evaluating(member) as frozen:
            return ATTACKS[self.attack](eps=self.eps, steps=self.steps)(frozen, batch.x, batch.y, draws, share)

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """Attack, then cross-entropy on the same draws."""
        draws = noise.draw(batch, self.copies, generator)
        scores = member(rows(self.attacked(member, batch, draws, noise.attack), draws))
        return plain_loss(scores, batch.labels(self.copies))


@final
@dataclass(frozen=True)
class SmoothMix(SingleObjective):
    """mean_i CE_i + eta * mean_i KL(target || f(mix + e_i)) over the inputs where fbar is right (Jeong et al. 2021).

    x~: T steps of length ``step`` along the unit gradient of the smoothed loss, clamped to [0, 1];
    mix = (1-l) x + l x~, target = (1-l) fbar(x) + l/K, l ~ U(0, 1/2), with gradients through the target, as in the
    authors' code. mix_steps: take for x the adversary after so many of the steps, within mix_steps * step of it.
    CIFAR-10: eta 5, T 4, step .5/1/2 and mix_steps 0/1/1 at sigma .25/.5/1; the second term, and how far x moves,
    follow the attack warm-up (10 epochs).
    """

    eta: float = penalty(5.0, "Weight of the mixed inputs.")
    steps: int = setting(4, "Steps of the attack.", low=1)
    step: float = setting(1.0, "Length of a step of the attack.", above=0)
    mix_steps: int = setting(0, "Steps after which the adversary stands for the input.", low=0)
    copies: int = noise_copies(2)
    name: ClassVar[str] = "smoothmix"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mix_steps >= self.steps:
            rule = f"must be below the {self.steps} steps"
            raise ArgumentError("mix_steps", rule, self.mix_steps, "Jeong et al. use 0 or 1.")

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """One set of draws serves the attack, the plain loss and the mixed inputs."""
        draws = noise.draw(batch, self.copies, generator)
        share = 0.5 * torch.rand(len(batch), generator=generator, device=batch.x.device)
        near, far = self.adversaries(member, batch, draws, noise.attack)
        part = wide(share, batch.x)
        scores = member(rows(near, draws))
        mixed = member(rows((1 - part) * near + part * far, draws))
        mean = log_mean_softmax(scores, self.copies).exp()
        right = mean.detach().argmax(1) == batch.y
        target = (1 - share.unsqueeze(1)) * mean + share.unsqueeze(1) / mean.shape[1]
        logs = torch.log_softmax(mixed.float(), -1).view(self.copies, len(batch), -1)
        divergence = (torch.special.xlogy(target, target) - target * logs).sum(-1)  # (m, B)
        mix = torch.where(right, divergence, 0.0).mean()
        return plain_loss(scores, batch.labels(self.copies), mix=self.eta * noise.attack * mix)

    def adversaries(self, member: nn.Module, batch: Batch, draws: Tensor, reached: Tensor) -> tuple[Tensor, Tensor]:
        """What stands for x, and x~: (B, *shape) each."""
        near = far = batch.x
        with evaluating(member) as frozen, torch.enable_grad():
            for number in range(self.steps):
                if number == self.mix_steps:
                    near = far
                gradient, _ = gradient_of_loss(frozen, far, batch.y, draws)
                far = (far + self.step * unit(gradient)).clamp(0, 1)
        if self.mix_steps:  # the ball grows with the warm-up
            near = (batch.x + into_l2_ball(near - batch.x, reached * self.mix_steps * self.step)).clamp(0, 1)
        return near.detach(), far.detach()

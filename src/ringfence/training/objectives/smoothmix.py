"""SmoothMix (Jeong et al. 2021): mix inputs with unrestricted adversarial ones, towards uniform confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.attacks import gradient_of_loss, log_mean_softmax, norms, unit
from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    check_copies,
    check_weight,
    evaluating,
    repeated,
    rows,
    share_right,
)


@final
@dataclass(frozen=True)
class SmoothMix(SingleObjective):
    """mean_i CE_i + eta * mean_i KL(target || f(mix + e_i)) over the inputs where fbar is right.

    x~: T steps of length ``step`` along the unit gradient of the smoothed loss, clamped to [0, 1];
    mix = (1-l) x + l x~, target = (1-l) fbar(x) + l/K, l ~ U(0, 1/2), with gradients through the target, as in the
    authors' code. mix_steps: take for x the adversary after so many of the steps, within mix_steps * step of it.
    CIFAR-10: eta 5, T 4, step .5/1/2 and mix_steps 0/1/1 at sigma .25/.5/1; the second term, and how far x moves,
    follow the attack warm-up (10 epochs).
    """

    eta: float = 5.0
    steps: int = 4
    step: float = 1.0
    mix_steps: int = 0
    copies: int = 2
    name: ClassVar[str] = "smoothmix"

    def __post_init__(self) -> None:
        check_weight("eta", self.eta)
        check_copies(self.copies)
        if self.steps < 1 or not 0 < self.step < float("inf"):
            raise ArgumentError("steps, step", "must be positive", (self.steps, self.step), "Use 4 steps of 1.0.")
        if not 0 <= self.mix_steps < self.steps:
            rule = f"must be at least 0 and below the {self.steps} steps"
            raise ArgumentError("mix_steps", rule, self.mix_steps, "Jeong et al. use 0 or 1.")

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """One set of draws serves the attack, the plain loss and the mixed inputs."""
        draws = noise.draw(x, self.copies, generator)
        share = 0.5 * torch.rand(len(x), generator=generator, device=x.device)
        near, far = self.adversaries(member, x, y, draws, noise.attack)
        wide = share.view(-1, *[1] * (x.dim() - 1))
        scores, labels = member(rows(near, draws)), repeated(y, self.copies)
        mixed = member(rows((1 - wide) * near + wide * far, draws))
        mean = log_mean_softmax(scores, self.copies).exp()
        right = mean.detach().argmax(1) == y
        target = (1 - share.unsqueeze(1)) * mean + share.unsqueeze(1) / mean.shape[1]
        logs = torch.log_softmax(mixed.float(), -1).view(self.copies, len(x), -1)
        divergence = (torch.special.xlogy(target, target) - target * logs).sum(-1)  # (m, B)
        mix = torch.where(right, divergence, 0.0).mean()
        terms = {"cross_entropy": cross_entropy(scores, labels), "mix": self.eta * noise.attack * mix}
        return LossTerms(terms, share_right(scores, labels))

    def adversaries(
        self, member: nn.Module, x: Tensor, y: Tensor, draws: Tensor, reached: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What stands for x, and x~: (B, *shape) each."""
        near = far = x
        with evaluating(member) as frozen, torch.enable_grad():
            for number in range(self.steps):
                if number == self.mix_steps:
                    near = far
                gradient, _ = gradient_of_loss(frozen, far, y, draws)
                far = (far + self.step * unit(gradient)).clamp(0, 1)
        if self.mix_steps:  # the ball grows with the warm-up
            moved = near - x
            limit = reached * self.mix_steps * self.step
            near = (x + moved * (limit / norms(moved).clamp_min(1e-12)).clamp_max(1.0)).clamp(0, 1)
        return near.detach(), far.detach()

"""SmoothAdv: adversarial training of the smoothed classifier (Salman et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.attacks import ATTACKS, Attack, check_attack
from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    check_copies,
    evaluating,
    repeated,
    rows,
    share_right,
)


@final
@dataclass(frozen=True)
class SmoothAdv(SingleObjective):
    """Cross-entropy at x' + e_i, where x' maximises -log mean_i softmax(f(x' + e_i))_y within an l2 ball.

    The m draws stay fixed during the attack and are used again in the loss. eps follows the attack warm-up.
    Papers: T = 10, m = 2; eps 1.0 (Yang et al. 2022), 512/255 (Horvath et al. 2022, CIFAR-10, sigma 1).
    """

    eps: float = 1.0
    steps: int = 10
    copies: int = 2
    attack: Literal["pgd", "ddn"] = "pgd"
    name: ClassVar[str] = "smoothadv"

    def __post_init__(self) -> None:
        check_attack(self.eps, self.steps)
        check_copies(self.copies)
        if self.attack not in ATTACKS:
            raise ArgumentError("attack", f"must be among {', '.join(ATTACKS)}", repr(self.attack), "Use pgd.")

    @property
    def attacker(self) -> Attack:
        """The attack with this objective's ball and steps."""
        return ATTACKS[self.attack](eps=self.eps, steps=self.steps)

    def attacked(self, member: nn.Module, x: Tensor, y: Tensor, draws: Tensor, share: Tensor) -> Tensor:
        """x' (B, *shape) under the fixed draws (m, B, *shape)."""
        with evaluating(member) as frozen:
            return self.attacker(frozen, x, y, draws, share)

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """Attack, then cross-entropy on the same draws."""
        draws = noise.draw(x, self.copies, generator)
        scores = member(rows(self.attacked(member, x, y, draws, noise.attack), draws))
        labels = repeated(y, self.copies)
        return LossTerms({"cross_entropy": cross_entropy(scores, labels)}, share_right(scores, labels))

"""Training on what is already certified (Sun et al. 2025): hard inputs are dropped, easy ones attacked, preferred."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.special import ndtri

from ringfence.attacks import norms, unit
from ringfence.errors import ArgumentError
from ringfence.stats.binomial import clopper_pearson_lower
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    Objective,
    SingleObjective,
    check_copies,
    evaluating,
    repeated,
    rows,
    share_right,
)
from ringfence.training.objectives.gaussian import Gaussian

DROP_DRAWS, WEIGHT_DRAWS = 100, 16
"""Noisy copies by which an input is dropped, and by which it is weighted."""
LEAST_SHARE, LEVEL = 0.75, 0.1
"""Shares of right answers below the first count as it; weights come from a lower bound that fails so often."""


@final
@dataclass(frozen=True)
class Reweight(SingleObjective):
    """Cross-entropy at x + e'_i, e'_i the noise e_i turned against the network at its own length.

    Until epoch ``begin`` Gaussian training. Then inputs that are right under fewer than ``least`` of 100 draws are
    dropped for good, and every ``every`` epochs the others get the weight PhiInv(lower bound of p), p the share of 16
    draws that are right, at least .75: inputs are drawn in proportion. e': T steps of length ``step`` along the unit
    gradient of the cross-entropy, each brought back to the noise's own length; the first noise that is answered
    wrongly, e itself included, else the last. CIFAR-10, sigma .25/.5/1: begin 60/70/60, least .5/.4/.4, T 3/6/4,
    step .25/.25/.5. Average certified radius rewards what this does: it gives up hard inputs.
    """

    begin: int = 60
    least: float = 0.5
    every: int = 10
    steps: int = 3
    step: float = 0.25
    copies: int = 4
    name: ClassVar[str] = "reweight"

    def __post_init__(self) -> None:
        check_copies(self.copies)
        if self.begin < 0 or self.every < 1:
            rule = "must be at least 0 and at least 1 epochs"
            raise ArgumentError("begin, every", rule, (self.begin, self.every), "Sun et al. use 60 and 10.")
        if not 0 <= self.least <= 1:
            raise ArgumentError(
                "least", "must lie in [0, 1]", self.least, "Sun et al. use 0.5 at sigma 0.25, else 0.4."
            )
        if self.steps < 1 or not 0 < self.step < float("inf"):
            raise ArgumentError("steps, step", "must be positive", (self.steps, self.step), "Use 3 steps of 0.25.")

    def at(self, epoch: int) -> Objective:
        """Gaussian training first."""
        return self if epoch >= self.begin else Gaussian(self.copies)

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

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """Cross-entropy at the attacked noises."""
        draws = self.turned(member, x, y, noise.draw(x, self.copies, generator))
        scores, labels = member(rows(x, draws)), repeated(y, self.copies)
        return LossTerms({"cross_entropy": cross_entropy(scores, labels)}, share_right(scores, labels))

    def turned(self, member: nn.Module, x: Tensor, y: Tensor, draws: Tensor) -> Tensor:
        """e' (m, B, *shape) of the draws e (m, B, *shape)."""
        labels, inputs, now = repeated(y, self.copies), x.repeat(self.copies, *[1] * (x.dim() - 1)), draws.flatten(0, 1)
        length, kept = norms(now), now
        found = torch.zeros_like(labels, dtype=torch.bool)
        with evaluating(member) as frozen, torch.enable_grad():
            for _ in range(self.steps):
                now = now.detach().requires_grad_()
                scores = frozen(inputs + now)
                (gradient,) = torch.autograd.grad(cross_entropy(scores, labels, reduction="sum"), now)
                wrong = scores.detach().argmax(1) != labels
                kept = torch.where(_wide(wrong & ~found, now), now.detach(), kept)
                found = found | wrong
                moved = now.detach() + self.step * unit(gradient)
                now = moved * (length / norms(moved).clamp_min(1e-12))
        return torch.where(_wide(found, now), kept, now).view_as(draws)


def _wide(mask: Tensor, like: Tensor) -> Tensor:
    """(B,) -> (B, 1, ..., 1)."""
    return mask.view(-1, *[1] * (like.dim() - 1))

"""Diversity-regularised training of ensembles (Yang et al. 2022, equations 9, 10, 54 and 55)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar, Literal, final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    Members,
    Objective,
    check_weight,
    eager,
    masked_mean,
    repeated,
    rows,
    safe_norm,
)
from ringfence.training.objectives.gaussian import Gaussian
from ringfence.training.objectives.second_order import SecondOrder
from ringfence.training.objectives.smoothadv import SmoothAdv


@final
@dataclass(frozen=True)
class Drt(Objective):
    """sum_i L_std(i) + rho1 * sum_{i != j} ||g_i + g_j||_2 + rho2 * sum_{i != j} (c_i + c_j) per noisy input.

    g_i = grad_x (f_i^{y0} - f_i^{yi2}), c_i = f_i^{yi2} - f_i^{y0}, f_i the softmax of member i and yi2 its
    runner-up; ordered pairs of which both members are right on that noisy input (``paper_sum``: summed over
    pairs, averaged over all rows). ``mean`` averages gradients over the valid pairs and margins over each
    member's own right rows; ``squared`` uses squared norms: rho compares only within one setting.
    form ``summed`` (eq. 54-55): ||sum_i g_i|| and sum_i c_i on rows where all members are right.
    base: L_std is the cross-entropy at x + e (gaussian), or at x'_i + e with each member's own attack
    (smoothadv); the regularisers are taken at x + e either way.
    """

    base: Gaussian | SmoothAdv = field(default_factory=Gaussian)
    rho1: float = 0.5
    rho2: float = 2.0
    reduction: Literal["paper_sum", "mean"] = "paper_sum"
    form: Literal["pairwise", "summed"] = "pairwise"
    squared: bool = False
    name: ClassVar[str] = "drt"
    joint: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight("rho1", self.rho1)
        check_weight("rho2", self.rho2)
        if self.reduction not in ("paper_sum", "mean"):
            raise ArgumentError("reduction", "must be paper_sum or mean", repr(self.reduction), "Use paper_sum.")
        if self.form not in ("pairwise", "summed"):
            raise ArgumentError("form", "must be pairwise or summed", repr(self.form), "Use pairwise.")

    @property
    def copies(self) -> int:  # type: ignore[override]
        """As many as the base objective's."""
        return self.base.copies

    def loss(
        self,
        members: Members,
        x: Tensor,
        y: Tensor,
        noise: TrainingNoise,
        generator: torch.Generator,
        soft: Tensor | None = None,
    ) -> LossTerms:
        """All members on the same noise."""
        draws = noise.draw(x, self.copies, generator)
        labels, noisy = repeated(y, self.copies), rows(x, draws).requires_grad_()
        standard, gradients, margins, right = [], [], [], []
        for member in members:
            with SecondOrder() as second:
                scores = eager(member)(noisy)
            standard.append(self._standard(member, scores, x, y, draws, noise))
            margin = margin_over_runner_up(scores, labels)
            if self.rho1:
                gradients.append(second.gradient(margin.sum(), noisy))
            margins.append(margin)
            right.append(scores.detach().argmax(1) == labels)
        diversity = self._diversity(gradients, right) if self.rho1 else noisy.new_zeros(())
        terms = {
            "cross_entropy": torch.stack(standard).sum(),
            "diversity": self.rho1 * diversity,
            "margin": self.rho2 * self._margin(margins, right),
        }
        return LossTerms(terms, torch.stack(right).float().mean())

    def _standard(
        self, member: torch.nn.Module, scores: Tensor, x: Tensor, y: Tensor, draws: Tensor, noise: TrainingNoise
    ) -> Tensor:
        if isinstance(self.base, SmoothAdv):
            scores = member(rows(self.base.attacked(member, x, y, draws, noise.attack), draws))
        return cross_entropy(scores, repeated(y, self.copies))

    def _diversity(self, gradients: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
        """The gradient-diversity loss, without rho1."""

        def size(gradient: Tensor) -> Tensor:
            return gradient.flatten(1).square().sum(1) if self.squared else safe_norm(gradient)

        if self.form == "summed":
            lengths, valid = size(torch.stack(list(gradients)).sum(0)), torch.stack(list(right)).all(0)
            return self._reduce(lengths, valid)
        pairs = list(combinations(range(len(gradients)), 2))
        lengths = torch.stack([size(gradients[i] + gradients[j]) for i, j in pairs])
        valid = torch.stack([right[i] & right[j] for i, j in pairs])
        return self._reduce(lengths, valid)

    def _margin(self, margins: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
        """The confidence-margin loss, without rho2."""
        if self.reduction == "mean":
            return torch.stack([masked_mean(-m, r) for m, r in zip(margins, right, strict=True)]).sum()
        if self.form == "summed":
            return self._reduce(-torch.stack(list(margins)).sum(0), torch.stack(list(right)).all(0))
        pairs = list(combinations(range(len(margins)), 2))
        sums = torch.stack([-(margins[i] + margins[j]) for i, j in pairs])
        return self._reduce(sums, torch.stack([right[i] & right[j] for i, j in pairs]))

    def _reduce(self, values: Tensor, valid: Tensor) -> Tensor:
        """Values (pairs, rows) or (rows,): each unordered pair stands for two ordered ones in ``paper_sum``."""
        if self.reduction == "mean":
            return masked_mean(values, valid)
        ordered = 2 if self.form == "pairwise" else 1
        return ordered * torch.where(valid, values, 0.0).sum() / values.shape[-1]


def margin_over_runner_up(scores: Tensor, y: Tensor) -> Tensor:
    """f^{y0} - f^{y2} (rows,): softmax of the label minus that of the best other class."""
    shares, label = torch.softmax(scores.float(), -1), y.unsqueeze(1)
    runner_up = scores.detach().scatter(1, label, -torch.inf).argmax(1, keepdim=True)
    return (shares.gather(1, label) - shares.gather(1, runner_up)).squeeze(1)

"""Objectives of denoisers in front of a fixed classifier (Salman et al. 2020, denoised smoothing)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from ringfence.classifiers import kinds_of, log_probabilities
from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import LossTerms, SingleObjective, check_copies, evaluating, repeated, rows


@final
@dataclass(frozen=True)
class DenoiseMse(SingleObjective):
    """mean over inputs of ||D(x + e) - x||_2^2 (Salman et al. 2020, eq. 4).

    There is no right or wrong answer, and so no accuracy: it is NaN.
    """

    copies: int = 1
    name: ClassVar[str] = "denoise-mse"

    def __post_init__(self) -> None:
        check_copies(self.copies)

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """The squared error of the denoised input."""
        cleaned = member(rows(x, noise.draw(x, self.copies, generator)))
        if cleaned.shape[1:] != x.shape[1:]:
            rule = "a denoiser returns what it was given, without the noise"
            raise ArgumentError("members", rule, f"{tuple(x.shape[1:])} -> {tuple(cleaned.shape[1:])}", "Use dncnn.")
        squares = (cleaned.float().view(self.copies, *x.shape) - x).square()
        return LossTerms({"squared_error": squares.flatten(2).sum(2).mean()}, squares.new_full((), math.nan))


@final
@dataclass(frozen=True)
class DenoiseStability(SingleObjective):
    """mean of CE(C(D(x + e)), argmax C(x)) for a fixed classifier C (Salman et al. 2020, eq. 5)."""

    classifier: nn.Module
    copies: int = 1
    name: ClassVar[str] = "denoise-stability"

    def __post_init__(self) -> None:
        check_copies(self.copies)

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """The classifier should not notice that the input was noisy; only the denoiser is trained."""
        with evaluating(self.classifier) as fixed:
            with torch.no_grad():
                answer = repeated(fixed(x).argmax(1), self.copies)
            scores = fixed(member(rows(x, noise.draw(x, self.copies, generator))))
        right = (scores.detach().argmax(1) == repeated(y, self.copies)).float().mean()
        return LossTerms({"stability": nll_loss(log_probabilities(scores, kinds_of(self.classifier)), answer)}, right)

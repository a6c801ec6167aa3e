"""Objectives of denoisers in front of a fixed classifier (Salman et al. 2020, denoised smoothing)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
from torch import nn
from torch.nn.functional import nll_loss

from ringfence.classifiers import kinds_of, log_probabilities
from ringfence.errors import ArgumentError
from ringfence.training.batch import Batch, TrainingNoise
from ringfence.training.objectives.base import LossTerms, Members, Objective, SingleObjective, noise_copies
from ringfence.training.objectives.formulas import evaluating, share_right


class _OfDenoiser(SingleObjective):
    """What is trained goes before a classifier: it gives images, and no held-out accuracy."""

    judged: ClassVar[bool] = False

    @final
    def certified_with(self, models: Sequence[str], classifier: str, sigma: float) -> str:
        """In front of the classifier."""
        trees = [f"denoised({model}, {classifier or 'CLASSIFIER'})" for model in models]
        return super().certified_with(trees, classifier, sigma)


@final
@dataclass(frozen=True)
class DenoiseMse(_OfDenoiser):
    """mean over inputs of ||D(x + e) - x||_2^2 (Salman et al. 2020, eq. 4).

    There is no right or wrong answer, and so no accuracy: it is NaN.
    """

    copies: int = noise_copies(1)
    name: ClassVar[str] = "denoise-mse"

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """The squared error of the denoised input."""
        cleaned, shape = member(batch.under(noise.draw(batch, self.copies, generator))), batch.x.shape
        if cleaned.shape[1:] != shape[1:]:
            rule = "a denoiser returns what it was given, without the noise"
            raise ArgumentError("members", rule, f"{tuple(shape[1:])} -> {tuple(cleaned.shape[1:])}", "Use dncnn.")
        squares = (cleaned.float().view(self.copies, *shape) - batch.x).square()
        return LossTerms({"squared_error": squares.flatten(2).sum(2).mean()}, squares.new_full((), math.nan))


@final
@dataclass(frozen=True)
class DenoiseStability(_OfDenoiser):
    """mean of CE(C(D(x + e)), argmax C(x)) for a fixed classifier C (Salman et al. 2020, eq. 5)."""

    classifier: nn.Module | None = field(default=None, repr=False)
    copies: int = noise_copies(1)
    name: ClassVar[str] = "denoise-stability"
    classifier_for: ClassVar[str] = "it is trained for"

    def with_networks(self, classifier: nn.Module | None, earlier: Members) -> Objective:
        """With the classifier behind the denoiser."""
        return replace(self, classifier=classifier)

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """The classifier should not notice that the input was noisy; only the denoiser is trained."""
        if self.classifier is None:
            rule = f"{self.name} needs the classifier {self.classifier_for}"
            raise ArgumentError("classifier", rule, "none", "Give the network.")
        with evaluating(self.classifier) as fixed:
            with torch.no_grad():
                answer = fixed(batch.x).argmax(1).repeat(self.copies)
            scores = fixed(member(batch.under(noise.draw(batch, self.copies, generator))))
        lost = nll_loss(log_probabilities(scores, kinds_of(self.classifier)), answer)
        return LossTerms({"stability": lost}, share_right(scores, batch.labels(self.copies)))

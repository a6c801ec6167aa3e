"""Networks beside a fixed classifier: ACES's selector (Horvath et al. 2022) and denoisers (Salman et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np
import torch
from torch import nn
from torch.nn.functional import nll_loss

from ringfence.classifiers import kinds_of, log_probabilities
from ringfence.errors import ArgumentError
from ringfence.settings import setting
from ringfence.training.data import Batch, DeviceData, TrainingNoise
from ringfence.training.objectives.adversarial import SmoothAdv, SmoothMix
from ringfence.training.objectives.base import (
    LossTerms,
    Members,
    Objective,
    Questions,
    SingleObjective,
    evaluating,
    noise_copies,
    share_right,
)
from ringfence.training.objectives.gaussian import Consistency, Macer, NoiseAugmentation, Stability
from ringfence.types import IntArray

BASES = (NoiseAugmentation, SmoothAdv, Consistency, Macer, Stability, SmoothMix)
"""What a selection network may be trained with."""


@final
@dataclass(frozen=True)
class Select(SingleObjective):
    """The base objective of a network with two scores, (leave to the core, certify), at labels 1[n_y / n >= eta].

    n_y: how many of n noisy copies of an input the certification network gets right. Horvath et al. use eta .5 and .95,
    and as base what the certification network was trained with.
    """

    base: SingleObjective = field(default_factory=NoiseAugmentation, metadata={"bases": BASES})
    eta: float = setting(0.5, "Share of right answers from which on an input is worth certifying.", above=0, high=1)
    n: int = setting(1000, "Noisy copies behind each label.", low=1)
    name: ClassVar[str] = "select"
    classifier_for: ClassVar[str] = "it is trained for"

    @property
    def copies(self) -> int:  # type: ignore[override]
        """As many as the base objective's."""
        return self.base.copies

    def questions(self, sigma: float) -> Questions:
        """Whether noisy copies are answered rightly."""
        return Questions(sigma, self.n)

    def labelled(self, data: DeviceData, votes: IntArray) -> DeviceData:
        """The same inputs with label 1[n_y / n >= eta]; both labels must occur."""
        worth = votes[np.arange(len(data)), data.y.cpu().numpy()] / self.n >= self.eta
        if worth.all() or not worth.any():
            rule = "must part the training inputs in two"
            remedy = "Raise eta or sigma." if worth.all() else "Lower eta or sigma, or train the classifier further."
            received = f"{self.eta:g}, with which {'every' if worth.all() else 'no'} input is worth certifying"
            raise ArgumentError("eta", rule, received, remedy)
        return DeviceData(data.x, torch.from_numpy(worth.astype(np.int64)).to(data.y.device), 2)

    def about_labels(self, data: DeviceData) -> str:
        """How many inputs are worth certifying."""
        worth = f"for {int(data.y.sum())} of {len(data)} training inputs"
        return f"right on a share of at least {self.eta:g} of {self.n} noisy copies {worth}"

    def certified_with(self, models: Sequence[str], classifier: str, sigma: float) -> str:
        """As the selector of an ACES."""
        return f"certify --model 'aces(certify={classifier}, core=MODEL, select={models[0]})' --sigma {sigma:g}"

    def at(self, epoch: int) -> Select:
        """With what the base objective minimises in that epoch."""
        base = self.base.at(epoch)
        assert isinstance(base, SingleObjective)
        return self if base is self.base else replace(self, base=base)

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """The base objective's."""
        return self.base.loss_of(member, batch, noise, generator)


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

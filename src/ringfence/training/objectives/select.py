"""ACES's selection network: which inputs are worth certifying (Horvath et al. 2022, robust and accurate)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import numpy as np
import torch
from torch import nn

from ringfence.errors import ArgumentError
from ringfence.settings import setting
from ringfence.training.batch import Batch, TrainingNoise
from ringfence.training.data import DeviceData
from ringfence.training.objectives.adversarial import SmoothAdv, SmoothMix
from ringfence.training.objectives.base import LossTerms, Questions, SingleObjective
from ringfence.training.objectives.gaussian import Consistency, Gaussian, Stability
from ringfence.training.objectives.macer import Macer
from ringfence.types import IntArray

BASES = (Gaussian, SmoothAdv, Consistency, Macer, Stability, SmoothMix)
"""What a selection network may be trained with."""


@final
@dataclass(frozen=True)
class Select(SingleObjective):
    """The base objective of a network with two scores, (leave to the core, certify), at labels 1[n_y / n >= eta].

    n_y: how many of n noisy copies of an input the certification network gets right. Horvath et al. use eta .5 and .95,
    and as base what the certification network was trained with.
    """

    base: SingleObjective = field(default_factory=Gaussian, metadata={"bases": BASES})
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
        return f"certify --model 'aces(certify={classifier}, core=MODEL, select={models[0]})' --sigma {sigma:g} ..."

    def at(self, epoch: int) -> Select:
        """With what the base objective minimises in that epoch."""
        base = self.base.at(epoch)
        assert isinstance(base, SingleObjective)
        return self if base is self.base else replace(self, base=base)

    def loss_of(self, member: nn.Module, batch: Batch, noise: TrainingNoise, generator: torch.Generator) -> LossTerms:
        """The base objective's."""
        return self.base.loss_of(member, batch, noise, generator)

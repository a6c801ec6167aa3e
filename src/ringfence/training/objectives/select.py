"""ACES's selection network: which inputs are worth certifying (Horvath et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from ringfence.errors import ArgumentError
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import LossTerms, SingleObjective
from ringfence.training.objectives.gaussian import Gaussian


@final
@dataclass(frozen=True)
class Select(SingleObjective):
    """The base objective of a network with two scores, (leave to the core, certify), at labels 1[n_y / n >= eta].

    n_y: how many of n noisy copies of an input the certification network gets right (``training/selection.py``);
    Horvath et al. 2022 (ACES) use eta .5 and .95, and as base what the certification network was trained with.
    """

    base: SingleObjective = field(default_factory=Gaussian)
    eta: float = 0.5
    n: int = 1000
    name: ClassVar[str] = "select"

    def __post_init__(self) -> None:
        if not 0 < self.eta <= 1:
            raise ArgumentError("--set eta", "must lie in (0, 1]", self.eta, "ACES's authors use 0.5 and 0.95.")
        if self.n < 1:
            raise ArgumentError("--set n", "must be at least 1", self.n, "ACES's authors use 1000 noisy copies.")

    @property
    def copies(self) -> int:  # type: ignore[override]
        """As many as the base objective's."""
        return self.base.copies

    def at(self, epoch: int) -> Select:
        """With what the base objective minimises in that epoch."""
        base = self.base.at(epoch)
        assert isinstance(base, SingleObjective)
        return self if base is self.base else replace(self, base=base)

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """The base objective's."""
        return self.base.loss_of(member, x, y, noise, generator)

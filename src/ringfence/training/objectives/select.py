"""ACES's selection network: which inputs are worth certifying (paper 002; METHODS section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ringfence.errors import ArgumentError
from ringfence.training.data_on_device import DeviceData
from ringfence.training.noise import TrainingNoise
from ringfence.training.objectives.base import (
    LossTerms,
    SingleObjective,
    check_copies,
    repeated,
    rows,
    share_right,
)

ROWS = 8192
"""Noisy copies per forward when labels are made."""


@final
@dataclass(frozen=True)
class Select(SingleObjective):
    """Cross-entropy of a binary network at x + e with the labels 1[n_y / n >= eta] of ``selection_labels``.

    eta: share of n noisy copies that the certification network must get right; paper 002 uses .5 and .95.
    """

    eta: float = 0.5
    n: int = 1000
    copies: int = 1
    name: ClassVar[str] = "select"

    def __post_init__(self) -> None:
        check_copies(self.copies)
        if not 0 < self.eta <= 1 or self.n < 1:
            raise ArgumentError("eta, n", "must be in (0, 1] and at least 1", (self.eta, self.n), "Use 0.5 and 1000.")

    def loss_of(
        self, member: nn.Module, x: Tensor, y: Tensor, noise: TrainingNoise, generator: torch.Generator
    ) -> LossTerms:
        """Two scores: leave to the core network (0), certify (1)."""
        scores, labels = member(rows(x, noise.draw(x, self.copies, generator))), repeated(y, self.copies)
        return LossTerms({"cross_entropy": cross_entropy(scores, labels)}, share_right(scores, labels))


@torch.no_grad()
def selection_labels(
    classifier: nn.Module, data: DeviceData, sigma: float, objective: Select, seed: int = 0
) -> DeviceData:
    """The same inputs with label 1 where the classifier is right on a share of at least eta of n noisy copies."""
    device = data.x.device
    classifier = classifier.to(device).eval()
    generator = torch.Generator(device).manual_seed(seed)
    hits = torch.zeros(len(data), dtype=torch.int64, device=device)
    for at in range(len(data)):
        for start in range(0, objective.n, ROWS):
            count = min(ROWS, objective.n - start)
            noise = torch.randn((count, *data.x.shape[1:]), generator=generator, device=device)
            hits[at] += (classifier(data.x[at] + sigma * noise).argmax(1) == data.y[at]).sum()
    worth = (hits >= objective.eta * objective.n).to(torch.int64)
    return DeviceData(data.x, worth, 2)

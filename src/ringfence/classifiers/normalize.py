"""Normalisation inside the classifier, so that sigma and radii stay in the units of the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, score
from ringfence.errors import ArgumentError, ClassifierError


@final
class Normalize(Classifier):
    """module((x - mean) / std), per channel: x (..., C, H, W) in [0, 1] -> scores of the wrapped module.

    mean, std: one number per channel, or a single one for all; of features (B, D) one per feature.
    """

    wraps = "module"
    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean:
            raise ArgumentError(
                "mean, std",
                "must give the same number of channels",
                f"{len(mean)} and {len(std)} numbers",
                "Give one number per channel for each.",
            )
        if not all(math.isfinite(value) for value in mean):
            raise ArgumentError("mean", "must be finite", list(mean), "Give the training set's channel means.")
        if not all(math.isfinite(value) and value > 0 for value in std):
            raise ArgumentError("std", "must be positive", list(std), "Give the training set's channel deviations.")
        self.module = module
        self.register_buffer("mean", torch.tensor(list(mean), dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(list(std), dtype=torch.float32).view(-1, 1, 1))

    def score(self, x: Tensor) -> Scored:
        """Scores of the normalised batch."""
        channels, of_features = self.mean.shape[0], x.dim() == 2
        # A gray image would silently broadcast to three channels, and a batch of sequences take its rows for them.
        if channels != 1 and (x.dim() == 3 or x.shape[-1 if of_features else -3] != channels):
            raise ClassifierError(
                "mean, std",
                "must match the channels of the inputs (..., C, H, W), or the features (B, D)",
                f"{channels} numbers for inputs of shape {tuple(x.shape)}",
                "Give one number per channel or feature, or a single one for all.",
            )
        mean, std = (one.flatten() if of_features else one for one in (self.mean, self.std))
        return score(self.module, (x - mean) / std)

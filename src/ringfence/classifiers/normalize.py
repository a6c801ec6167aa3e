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

    def __init__(
        self, module: nn.Module, mean: float | Sequence[float] | Tensor, std: float | Sequence[float] | Tensor
    ) -> None:
        super().__init__()
        means, stds = (torch.as_tensor(one, dtype=torch.float64).flatten().tolist() for one in (mean, std))
        if len(means) != len(stds) or not means:
            raise ArgumentError(
                "mean, std",
                "must give the same number of channels",
                f"{len(means)} and {len(stds)} numbers",
                "Give one number per channel for each.",
            )
        if not all(math.isfinite(value) for value in means):
            raise ArgumentError("mean", "must be finite", means, "Give the training set's channel means.")
        if not all(math.isfinite(value) and value > 0 for value in stds):
            raise ArgumentError("std", "must be positive", stds, "Give the training set's channel deviations.")
        self.module = module
        self.register_buffer("mean", torch.tensor(means, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(stds, dtype=torch.float32).view(-1, 1, 1))

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

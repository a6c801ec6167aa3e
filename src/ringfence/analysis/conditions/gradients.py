"""Score differences and gradients of real members at an input: a diagnostic, never a certificate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from ringfence.analysis.variance.logits import noisy_copies
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, eq=False)
class ScoreGradients:
    """differences (members, K-1): f^{label/y}, the label left out; gradients (members, K-1, d): theirs."""

    differences: FloatArray
    gradients: FloatArray


def score_gradients(
    members: Sequence[nn.Module],
    x: Tensor,
    label: int,
    *,
    sigma: float = 0.0,
    draws: int = 100,
    seed: int = 0,
    input_id: int = 0,
) -> ScoreGradients:
    """Softmax differences and their input gradients at x (*shape), averaged over Gaussian noise shared by the members.

    sigma = 0: the members themselves, no noise. A diagnostic, never a certificate: a mean over draws estimates the
    expectation, and the norm of an estimated gradient is too large on average, by its own noise.
    """
    if not members:
        raise ArgumentError("members", "must not be empty", "no members", "Give at least one.")
    means = [
        _mean_scores(member, [x.unsqueeze(0)] if sigma == 0 else noisy_copies(x, sigma, draws, seed, input_id))
        for member in members
    ]
    scores, slopes = (np.stack(part) for part in zip(*means, strict=True))
    if not 0 <= label < scores.shape[1]:
        raise ArgumentError("label", f"must be one of the {scores.shape[1]} classes", label, "Give the true class.")
    others = [k for k in range(scores.shape[1]) if k != label]
    return ScoreGradients(scores[:, [label]] - scores[:, others], slopes[:, [label]] - slopes[:, others])


def _mean_scores(member: nn.Module, batches: Iterable[Tensor]) -> tuple[FloatArray, FloatArray]:
    """Softmax scores (K,) and their gradients (K, d), averaged over the rows of all batches."""
    import torch

    from ringfence.classifiers import kinds_of, probabilities

    member.eval()
    count, score_sum, slope_sum = 0, torch.tensor(0.0), torch.tensor(0.0)
    for batch in batches:
        points = batch.detach().requires_grad_()
        scores = probabilities(member(points), kinds_of(member))
        slopes = [
            torch.autograd.grad(scores[:, k].sum(), points, retain_graph=True)[0].sum(0).flatten()
            for k in range(scores.shape[1])
        ]
        count += len(batch)
        score_sum = score_sum + scores.detach().sum(0).double().cpu()
        slope_sum = slope_sum + torch.stack(slopes).double().cpu()
    return (score_sum / count).numpy(), (slope_sum / count).numpy()

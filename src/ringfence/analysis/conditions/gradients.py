"""Score differences and gradients of real members at an input, for the conditions: a diagnostic, never a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from ringfence.analysis.variance.logits import DIAGNOSTIC_STAGE
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

if TYPE_CHECKING:
    from torch import Tensor, nn


@final
@dataclass(frozen=True, eq=False)
class ScoreGradients:
    """differences (members, K-1): E f^{label/y}; gradients (members, K-1, d): theirs; classes in order, label left out."""

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
    expectation, and the norm of an estimated gradient is too large on average by about its own noise.
    """
    import torch

    total = _Sums(len(members))
    for member in members:
        member.eval()
    for noisy in _batches(x, sigma, draws, seed, input_id):
        for index, member in enumerate(members):
            points = noisy.detach().requires_grad_()
            scores = member(points).softmax(-1)
            if not 0 <= label < scores.shape[1]:
                rule = f"must be one of the {scores.shape[1]} classes"
                raise ArgumentError("label", rule, label, "Give the true class of the input.")
            slopes = [
                torch.autograd.grad(scores[:, k].sum(), points, retain_graph=k + 1 < scores.shape[1])[0].sum(0)
                for k in range(scores.shape[1])
            ]
            total.add(index, scores.detach().sum(0), torch.stack(slopes).flatten(1))
    scores_sum, slopes_sum = total.means(draws if sigma > 0 else 1)
    differences = scores_sum[:, [label]] - np.delete(scores_sum, label, axis=1)
    return ScoreGradients(differences, slopes_sum[:, [label]] - np.delete(slopes_sum, label, axis=1))


class _Sums:
    """Running sums of scores (K,) and slopes (K, d) per member."""

    def __init__(self, members: int) -> None:
        if not members:
            raise ArgumentError("members", "must not be empty", "no members", "Give at least one.")
        self._sums: list[tuple[Tensor, Tensor] | None] = [None] * members

    def add(self, index: int, scores: Tensor, slopes: Tensor) -> None:
        new, old = (scores.double(), slopes.double()), self._sums[index]
        self._sums[index] = new if old is None else (old[0] + new[0], old[1] + new[1])

    def means(self, draws: int) -> tuple[FloatArray, FloatArray]:
        kept = [entry for entry in self._sums if entry is not None]
        scores = np.stack([entry[0].cpu().numpy() for entry in kept]) / draws
        return scores, np.stack([entry[1].cpu().numpy() for entry in kept]) / draws


def _batches(x: Tensor, sigma: float, draws: int, seed: int, input_id: int) -> list[Tensor]:
    raise NotImplementedError

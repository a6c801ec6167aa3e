"""What the members of an ensemble answer at one input under shared noise: logits, scores and their gradients.

Diagnostics, never certificates: their draws come from streams of their own, which no certificate uses.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import kinds_of, probabilities, score
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.noise import Gaussian, Noise
from ringfence.sampling.draws import CHUNK, chunk_key
from ringfence.types import FloatArray

DIAGNOSTIC_STAGE, HOLDOUT_STAGE = -1, -2
"""Streams of draws: certification counts stages from 0, so what predicts or chooses an ensemble never certifies it."""


_MOST = 1_000_000


def noisy_copies(x: Tensor, noise: Noise, draws: int, seed: int, input_id: int, stage: int) -> Iterator[Tensor]:
    """x (*shape) plus the first draws of a stream, in batches of at most CHUNK rows."""
    if not 1 <= draws <= _MOST:
        rule = f"must be 1 to {_MOST:,}, whose scores are held in memory"
        raise ArgumentError("draws", rule, draws, "10 rank members; a model needs about a thousand.")
    buffer = torch.empty((CHUNK, *x.shape), device=x.device)
    for first in range(0, draws, CHUNK):
        noise.fill(buffer, chunk_key(seed, input_id, stage, first // CHUNK))
        yield x.float() + buffer[: draws - first]


@torch.inference_mode()
def collect_logits(
    members: Sequence[nn.Module], x: Tensor, noise: Noise | float, draws: int, seed: int, input_id: int = 0
) -> tuple[FloatArray, FloatArray]:
    """(logits (members, draws, K), clean (members, K)) at x (*shape): every member sees the same noise (a number: the
    sigma of Gaussian noise).

    The noise of draw i depends only on (seed, input_id, i); members run in evaluation mode, on x's device.
    """
    _check_some(members)
    members = [_in_evaluation(member) for member in members]
    clean = _stack([score(member, x.float().unsqueeze(0)).scores for member in members])[:, 0]
    drawn = noise if isinstance(noise, Noise) else Gaussian(noise)
    noisy = noisy_copies(x, drawn, draws, seed, input_id, DIAGNOSTIC_STAGE)
    logits = torch.cat([_stack([score(member, batch).scores for member in members]) for batch in noisy], dim=1)
    return logits.numpy(), clean.numpy()


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
    _check_some(members)

    def batches() -> Iterable[Tensor]:
        if sigma == 0:
            return [x.unsqueeze(0)]
        return noisy_copies(x, Gaussian(sigma), draws, seed, input_id, DIAGNOSTIC_STAGE)

    means = [_mean_scores(member, batches()) for member in members]
    scores, slopes = (np.stack(part) for part in zip(*means, strict=True))
    if not 0 <= label < scores.shape[1]:
        raise ArgumentError("label", f"must be one of the {scores.shape[1]} classes", label, "Give the true class.")
    others = [k for k in range(scores.shape[1]) if k != label]
    return ScoreGradients(scores[:, [label]] - scores[:, others], slopes[:, [label]] - slopes[:, others])


def _mean_scores(member: nn.Module, batches: Iterable[Tensor]) -> tuple[FloatArray, FloatArray]:
    """Softmax scores (K,) and their gradients (K, d), averaged over the rows of all batches."""
    member = _in_evaluation(member)
    count, score_sum, slope_sum = 0, torch.tensor(0.0), torch.tensor(0.0)
    for batch in batches:
        points = batch.detach().requires_grad_()
        scores = probabilities(score(member, points).scores, kinds_of(member))
        slopes = [
            torch.autograd.grad(scores[:, k].sum(), points, retain_graph=True)[0].sum(0).flatten()
            for k in range(scores.shape[1])
        ]
        count += len(batch)
        score_sum = score_sum + scores.detach().sum(0).double().cpu()
        slope_sum = slope_sum + torch.stack(slopes).double().cpu()
    return (score_sum / count).numpy(), (slope_sum / count).numpy()


def _in_evaluation(member: nn.Module) -> nn.Module:
    """The member in evaluation mode; a copy where the user's own is not."""
    return copy.deepcopy(member).eval() if any(part.training for part in member.modules()) else member


def _check_some(members: Sequence[nn.Module]) -> None:
    if not members:
        raise ArgumentError("members", "must not be empty", "no members", "Give at least one.")


def _stack(scores: list[Tensor]) -> Tensor:
    """Scores (members, B, K) in double precision on the host; all members must return the same shape."""
    shapes = {tuple(score.shape) for score in scores}
    if len(shapes) != 1 or scores[0].dim() != 2:
        rule = "must all return scores of one shape (B, K)"
        raise ClassifierError("members", rule, sorted(shapes), "Use members with the same classes.")
    return torch.stack(scores).double().cpu()

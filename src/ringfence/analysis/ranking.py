"""Which member is best under noise: accuracy on inputs that are held out from certification (paper 000, app. D.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import LOGITS, Kinds, Members
from ringfence.data import Dataset
from ringfence.errors import ArgumentError, DataError
from ringfence.noise import Noise
from ringfence.sampling.draws import CHUNK, chunk_key

HOLDOUT_STAGE = -2
"""The stream of these draws: certification counts stages from 0, so what chooses an ensemble never certifies it."""


@final
@dataclass(frozen=True, eq=False)
class Holdout:
    """Scores (inputs, draws, members, K) on noisy copies, float32 on the host, labels (inputs,) int64, and what kind
    of scores each member gives."""

    scores: Tensor
    labels: Tensor
    kinds: Kinds = LOGITS

    @property
    def flat(self) -> tuple[Tensor, Tensor]:
        """Every noisy copy on its own: scores (inputs * draws, members, K) and labels (inputs * draws,)."""
        return self.scores.flatten(0, 1), self.labels.repeat_interleave(self.scores.shape[1])


@final
@dataclass(frozen=True)
class Ranked:
    """A member's place: its position as given, noisy hold-out accuracy, and standard error over inputs."""

    member: int
    accuracy: float
    error: float


@torch.inference_mode()
def holdout_scores(
    members: Sequence[nn.Module],
    dataset: Dataset,
    noise: Noise,
    draws: int,
    seed: int = 0,
    device: torch.device | None = None,
) -> Holdout:
    """All members' scores on draws noisy copies of every input, the same copies for all members."""
    if draws < 1:
        raise ArgumentError("draws", "must be at least 1", draws, "10 noisy copies of an input are usual.")
    device = device or torch.device("cpu")
    ensemble = Members(members).to(device).eval()
    scores: list[Tensor] = []
    labels: list[int] = []
    for item in dataset:
        if item.label is None:
            raise DataError(dataset.name, "a hold-out set needs labels", f"input {item.id} without one", "Add labels.")
        labels.append(item.label)
        copies = noisy_copies(item.x.to(device, torch.float32), noise, draws, seed, item.id)
        scores.append(torch.cat([ensemble(batch).float().cpu() for batch in copies]))
    if not scores:
        raise DataError(dataset.name, "needs at least one hold-out input", "none", "Choose another --first or --skip.")
    return Holdout(torch.stack(scores), torch.tensor(labels), ensemble.kinds)


def noisy_copies(x: Tensor, noise: Noise, draws: int, seed: int, input_id: int) -> Iterator[Tensor]:
    """x (*shape) plus the draws of the hold-out stream, in batches of at most CHUNK rows."""
    buffer = torch.empty((CHUNK, *x.shape), device=x.device)
    for first in range(0, draws, CHUNK):
        noise.fill(buffer, chunk_key(seed, input_id, HOLDOUT_STAGE, first // CHUNK))
        yield x + buffer[: draws - first]


def rank(holdout: Holdout) -> list[Ranked]:
    """Members from best to worst by noisy accuracy, ties in the order given; invalid scores are wrong answers."""
    valid = torch.isfinite(holdout.scores).all(-1)
    right = valid & (holdout.scores.argmax(-1) == holdout.labels[:, None, None])
    per_input = right.double().mean(1).numpy()  # (inputs, members): copies of one input are not independent
    accuracy = per_input.mean(0)
    count = len(per_input)
    error = per_input.std(0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(accuracy), np.nan)
    order = np.argsort(-accuracy, kind="stable")
    return [Ranked(int(member), float(accuracy[member]), float(error[member])) for member in order]

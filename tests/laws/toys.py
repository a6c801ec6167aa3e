"""Classifiers whose answers are known exactly, whatever the batch: what the engine counts can be recomputed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import Classifier, Scored
from ringfence.lift import Lift
from ringfence.noise import Noise
from ringfence.sampling import CHUNK, chunk_key
from ringfence.types import IntArray


class Buckets(nn.Module):
    """The class is the number of edges at or below the first coordinate: comparisons only, so nothing is rounded."""

    edges: Tensor

    def __init__(self, edges: Sequence[float] = (0.0, 0.5, 1.0)) -> None:
        super().__init__()
        self.register_buffer("edges", torch.tensor(edges))
        self.largest_batch = 0

    def forward(self, x: Tensor) -> Tensor:
        self.largest_batch = max(self.largest_batch, len(x))
        bucket = (x.reshape(len(x), -1)[:, :1] >= self.edges).sum(1)
        return torch.eye(len(self.edges) + 1, device=x.device)[bucket]


class BucketLanes(Classifier):
    """Two lanes (B, 2, K): the second has its edges shifted."""

    def __init__(self, edges: Sequence[float] = (0.0, 0.5, 1.0), shift: float = 0.25) -> None:
        super().__init__()
        self.one, self.two = Buckets(edges), Buckets([edge + shift for edge in edges])

    def score(self, x: Tensor) -> Scored:
        return Scored(torch.stack([self.one(x), self.two(x)], 1), 1)


class SomeInvalid(nn.Module):
    """NaN, +inf or -inf scores where the first coordinate is above the limit."""

    def __init__(self, limit: float = 0.75, bad: float = float("nan")) -> None:
        super().__init__()
        self.inner, self.limit, self.bad = Buckets(), limit, bad

    def forward(self, x: Tensor) -> Tensor:
        scores = self.inner(x)
        scores[x.reshape(len(x), -1)[:, 0] > self.limit, 0] = self.bad
        return scores


class LittleMemory(nn.Module):
    """Runs out of memory above so many rows; limit can be lowered while it runs."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.inner, self.limit, self.refused = Buckets(), limit, 0

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > self.limit:
            self.refused += 1
            raise torch.OutOfMemoryError("no room")
        scores: Tensor = self.inner(x)
        return scores


class Double(Lift):
    """2 x, of norm 2."""

    name = "double"
    norm_bound = 2.0

    def __call__(self, x: Tensor) -> Tensor:
        return 2 * x


def draws_of(noise: Noise, shape: tuple[int, ...], seed: int, input_id: int, stage: int, start: int, n: int) -> Tensor:
    """The noise (n, *shape) of draws [start, start + n), chunk by chunk, as DESIGN.md defines it."""
    chunks = []
    for chunk in range(start // CHUNK, -(-(start + n) // CHUNK)):
        out = torch.empty(CHUNK, *shape)
        noise.fill(out, chunk_key(seed, input_id, stage, chunk))
        chunks.append(out)
    first = start - start // CHUNK * CHUNK
    return torch.cat(chunks)[first : first + n]


def votes_of(classifier: nn.Module, noisy: Tensor, num_classes: int) -> IntArray:
    """Class counts (K + 1,), the last for invalid scores."""
    scores = classifier(noisy)
    valid = torch.isfinite(scores).all(1)
    cells = torch.where(valid, scores.argmax(1), num_classes)
    return np.bincount(cells.numpy(), minlength=num_classes + 1).astype(np.int64)

"""Readout: what of the scores is counted. It names cells; the engine counts them and knows nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ringfence.errors import ArgumentError
from ringfence.types import BINS, SCORE_EDGES


class Readout(ABC):
    """Scores -> indices of the cells each draw falls into, computed on the device."""

    name: ClassVar[str]
    joint: ClassVar[bool] = False
    """Whether all lanes of a draw are counted together, as one row."""

    @abstractmethod
    def width(self, num_classes: int, lanes: int) -> int:
        """How many cells one row has."""

    @abstractmethod
    def cells(self, scores: Tensor) -> Tensor:
        """Scores (B, lanes, K) -> int64 cell indices (B, lanes, m): each draw adds one to m cells."""


@final
@dataclass(frozen=True)
class Votes(Readout):
    """The predicted class, argmax_k f_k; the extra last cell K takes invalid scores (NaN or infinite),
    which are never predicted and so count against every class."""

    name: ClassVar[str] = "votes"

    def width(self, num_classes: int, lanes: int) -> int:
        """K classes and the invalid outcome."""
        return num_classes + 1

    def cells(self, scores: Tensor) -> Tensor:
        """(B, lanes, K) -> (B, lanes, 1)."""
        valid = torch.isfinite(scores).all(-1, keepdim=True)
        invalid = torch.full_like(valid, scores.shape[-1], dtype=torch.int64)
        return torch.where(valid, scores.argmax(-1, keepdim=True), invalid)


@final
@dataclass(frozen=True)
class Scores(Readout):
    """Histogram of every class's softmax score, BINS bins a class, one extra last cell for invalid scores.

    Bin b of class k is cell k*BINS + b and holds scores in [SCORE_EDGES[b], SCORE_EDGES[b+1]]: read as the
    lower edge they are rounded down, as the upper edge up. An invalid draw adds K to the last cell, one per class.
    """

    name: ClassVar[str] = "scores"

    def width(self, num_classes: int, lanes: int) -> int:
        """K histograms and the invalid outcome."""
        return num_classes * BINS + 1

    def cells(self, scores: Tensor) -> Tensor:
        """(B, lanes, K) -> (B, lanes, K)."""
        classes = scores.shape[-1]
        valid = torch.isfinite(scores).all(-1, keepdim=True)
        share = torch.where(valid, scores, 0.0).softmax(-1)
        inner = torch.from_numpy(SCORE_EDGES[1:-1]).to(scores.device, share.dtype)
        bins = torch.bucketize(share, inner, right=True)
        cell = torch.arange(classes, device=scores.device) * BINS + bins
        return torch.where(valid, cell, classes * BINS)


@final
@dataclass(frozen=True)
class MemberVotes(Readout):
    """Votes of all lanes side by side in one row: cell m*(K+1) + class of lane m, for claims about several at once."""

    name: ClassVar[str] = "member_votes"
    joint: ClassVar[bool] = True

    def width(self, num_classes: int, lanes: int) -> int:
        """Votes of every lane."""
        return lanes * (num_classes + 1)

    def cells(self, scores: Tensor) -> Tensor:
        """(B, lanes, K) -> (B, 1, lanes)."""
        lanes, classes = scores.shape[1:]
        offset = torch.arange(lanes, device=scores.device) * (classes + 1)
        return (Votes().cells(scores).squeeze(2) + offset).unsqueeze(1)


READOUTS: dict[str, Readout] = {readout.name: readout for readout in (Votes(), Scores(), MemberVotes())}


def readouts(names: tuple[str, ...]) -> tuple[Readout, ...]:
    """The readouts a procedure needs, by name."""
    for name in names:
        if name not in READOUTS:
            raise ArgumentError("readout", f"must be one of {sorted(READOUTS)}", name, "Name a known readout.")
    return tuple(READOUTS[name] for name in names)

"""Readout: what of the scores is counted. It names cells; the engine counts them and knows nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ringfence.errors import ArgumentError


class Readout(ABC):
    """Scores -> indices of the cells each draw falls into, computed on the device."""

    name: ClassVar[str]

    @abstractmethod
    def width(self, num_classes: int) -> int:
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

    def width(self, num_classes: int) -> int:
        """K classes and the invalid outcome."""
        return num_classes + 1

    def cells(self, scores: Tensor) -> Tensor:
        """(B, lanes, K) -> (B, lanes, 1)."""
        valid = torch.isfinite(scores).all(-1, keepdim=True)
        invalid = torch.full_like(valid, scores.shape[-1], dtype=torch.int64)
        return torch.where(valid, scores.argmax(-1, keepdim=True), invalid)


READOUTS: dict[str, Readout] = {readout.name: readout for readout in (Votes(),)}


def readouts(names: tuple[str, ...]) -> tuple[Readout, ...]:
    """The readouts a procedure needs, by name."""
    for name in names:
        if name not in READOUTS:
            raise ArgumentError("readout", f"must be one of {sorted(READOUTS)}", name, "Name a known readout.")
    return tuple(READOUTS[name] for name in names)

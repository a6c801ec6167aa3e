"""Readout: what of the scores is counted. It names cells; the engine counts them and knows nothing else."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.classifiers import LOGITS, Aces, Kinds, kinds_of, probabilities
from ringfence.classifiers.base import APART
from ringfence.errors import LOAD_PLUGIN, ArgumentError
from ringfence.shapes import Float, Int
from ringfence.types import BINS, SCORE_EDGES, IntArray

LaneScores = Float[Tensor, "rows lanes classes"]
Cells = Int[Tensor, "rows counted cells"]


class Readout(ABC):
    """Scores -> indices of the cells each draw falls into, computed on the device."""

    name: ClassVar[str]
    joint: ClassVar[bool] = False
    """Whether all lanes of a draw are counted together, as one row."""

    @abstractmethod
    def width(self, num_classes: int, lanes: int) -> int:
        """How many cells one row has."""

    @abstractmethod
    def cells(self, scores: LaneScores) -> Cells:
        """Scores (B, lanes, K) -> int64 cell indices (B, lanes, m): each draw adds one to m cells."""

    def fitted_to(self, classifier: nn.Module) -> Readout:
        """The readout with whatever it must know of the classifier."""
        return self

    @property
    def fan_out(self) -> int:
        """Rows of the tally that one row on the device becomes."""
        return 1

    def unfold(self, counts: IntArray) -> Mapping[str, IntArray]:
        """Counts (rows, width) from the device -> named cells (rows * fan_out, ...) of the tally."""
        return {self.name: counts}


@final
@dataclass(frozen=True)
class Votes(Readout):
    """The predicted class, argmax_k f_k; the extra last cell K takes invalid scores (NaN or infinite),
    which are never predicted and so count against every class."""

    name: ClassVar[str] = "votes"

    def width(self, num_classes: int, lanes: int) -> int:
        """K classes and the invalid outcome."""
        return num_classes + 1

    def cells(self, scores: LaneScores) -> Cells:
        """(B, lanes, K) -> (B, lanes, 1)."""
        if scores.is_cpu and not torch.compiler.is_compiling() and math.isfinite(float(scores.sum())):
            return scores.argmax(-1, keepdim=True)  # no sum with NaN or infinity in it is finite: all rows are valid
        valid = torch.isfinite(scores).all(-1, keepdim=True)
        invalid = torch.full_like(valid, scores.shape[-1], dtype=torch.int64)
        return torch.where(valid, scores.argmax(-1, keepdim=True), invalid)


@final
@dataclass(frozen=True)
class Scores(Readout):
    """Histogram of every class's probability, BINS bins a class, one extra last cell for invalid scores.

    Bin b of class k is cell k*BINS + b and holds scores in [SCORE_EDGES[b], SCORE_EDGES[b+1]]: read as the
    lower edge they are rounded down, as the upper edge up. An invalid draw adds K to the last cell, one per class.
    kinds: whether the classifier's scores are logits, of which the softmax is taken, or probabilities already.
    """

    kinds: Kinds = LOGITS
    name: ClassVar[str] = "scores"

    def fitted_to(self, classifier: nn.Module) -> Readout:
        """With the kinds of the classifier's scores, lane by lane."""
        return Scores(kinds_of(classifier))

    def width(self, num_classes: int, lanes: int) -> int:
        """K histograms and the invalid outcome."""
        return num_classes * BINS + 1

    def cells(self, scores: LaneScores) -> Cells:
        """(B, lanes, K) -> (B, lanes, K)."""
        classes = scores.shape[-1]
        share = probabilities(scores, self.kinds)
        valid = torch.isfinite(share).all(-1, keepdim=True)
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

    def cells(self, scores: LaneScores) -> Cells:
        """(B, lanes, K) -> (B, 1, lanes)."""
        lanes, classes = scores.shape[1:]
        offset = torch.arange(lanes, device=scores.device) * (classes + 1)
        return (Votes().cells(scores).squeeze(2) + offset).unsqueeze(1)


@final
@dataclass(frozen=True)
class Selection(Readout):
    """Class votes of ACES's certification network and, from the same draws, the selector's bit for every theta.

    One draw falls into one vote cell and one cell of a histogram of the selector's value over the grid: cell i
    holds thetas[i-1] < value <= thetas[i], then come larger and invalid values. Sums from the left unfold it into
    one row per theta with cells ``votes`` (K+1) and ``bits`` (core, certify, invalid), so that a grid of a hundred
    thetas costs the device no more than a single one.
    """

    thetas: tuple[float, ...] = ()
    name: ClassVar[str] = "selection"
    joint: ClassVar[bool] = True

    def fitted_to(self, classifier: nn.Module) -> Readout:
        """With the classifier's grid."""
        if not isinstance(classifier, Aces):
            received, remedy = (
                type(classifier).__name__,
                "Compose Aces(certify, select, core), or use another procedure.",
            )
            raise ArgumentError("classifier", "ACES procedures certify an Aces classifier", received, remedy)
        return Selection(classifier.thetas)

    @property
    def fan_out(self) -> int:
        """A row per theta."""
        return len(self.thetas)

    def width(self, num_classes: int, lanes: int) -> int:
        """Votes, then the histogram."""
        return num_classes + 1 + len(self.thetas) + 2

    def cells(self, scores: LaneScores) -> Cells:
        """(B, 2, K) -> (B, 1, 2)."""
        vote, value = Votes().cells(scores[:, :1]).squeeze(2), scores[:, 1, :1]
        grid = grid_of(self.thetas, scores.device)
        # theta = 0 selects nothing, not even a value that was rounded down to 0.
        bins = torch.bucketize(value.clamp_min(torch.finfo(torch.float32).tiny), grid)
        bins = torch.where(torch.isfinite(value), bins, len(self.thetas) + 1)
        return torch.cat([vote, scores.shape[2] + 1 + bins], 1).unsqueeze(1)

    def unfold(self, counts: IntArray) -> Mapping[str, IntArray]:
        """(rows, width) -> ``votes`` (rows * thetas, K+1) and ``bits`` (rows * thetas, 3)."""
        votes, histogram = np.split(counts, [-len(self.thetas) - 2], axis=1)
        certify = histogram[:, :-2].cumsum(1)
        invalid = np.broadcast_to(histogram[:, -1:], certify.shape)
        core = histogram.sum(1, keepdims=True) - certify - invalid
        bits = np.stack([core, certify, invalid], 2).reshape(-1, 3)
        return {"votes": np.repeat(votes, len(self.thetas), 0), "bits": bits}


@lru_cache(maxsize=8)
def grid_of(thetas: tuple[float, ...], device: torch.device) -> Tensor:
    """The thresholds (T,) as the device compares with them, copied there once."""
    return torch.tensor(thetas, dtype=torch.float32, device=device)


APART.append((sys.modules[__name__], "grid_of", True))  # traced, it would be copied to the device for every batch


READOUTS: dict[str, Readout] = {readout.name: readout for readout in (Votes(), Scores(), MemberVotes(), Selection())}


def readouts(
    names: tuple[str, ...], classifier: nn.Module | None = None, procedure: str = "this one"
) -> tuple[Readout, ...]:
    """The readouts that the named procedure needs, fitted to the classifier if there is one.

    What an Aces classifier gives is no class's score: only ``selection`` can read it.
    """
    if isinstance(classifier, Aces) and names != (Selection.name,):
        rule = "an Aces classifier is certified by aces, aces-sequential or aces-predict"
        remedy = "Use AcesSequential for a known radius (as staged and sequential), else AcesCertify or AcesPredict."
        raise ArgumentError("procedure", rule, procedure, remedy)
    for name in names:
        if name not in READOUTS:
            remedy = f"Name one of them, or {LOAD_PLUGIN}"
            raise ArgumentError("readout", f"must be one of {', '.join(sorted(READOUTS))}", name, remedy)
    found = tuple(READOUTS[name] for name in names)
    return found if classifier is None else tuple(readout.fitted_to(classifier) for readout in found)

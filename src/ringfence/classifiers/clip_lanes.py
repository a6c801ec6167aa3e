"""ClipLanes: plain smoothing of a video and several Smooth-Reduce-(t,m) in one pass (Joshi et al. 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, kinds_of, score
from ringfence.classifiers.kinds import Kinds
from ringfence.classifiers.patches import Reduction, check_reduction, combined, kinds_of_reduction
from ringfence.classifiers.video import frames_of
from ringfence.errors import ArgumentError
from ringfence.operators import check_clips, clips


@final
@dataclass(frozen=True)
class ClipLane:
    """Smooth-Reduce-(frames, chunk): count sub-videos of so many frames, each the mean of its chunks.

    Without frames it is plain smoothing: the whole video in chunks.
    """

    chunk: int
    frames: int | None = None
    count: int = 3
    reduce: Reduction = "mean"

    def __post_init__(self) -> None:
        check_reduction(self.reduce)
        check_clips(self.frames or 1, self.count, None)
        if self.chunk < 1:
            raise ArgumentError("chunk", "has at least one frame", self.chunk, "Use e.g. 8 or 16.")

    @property
    def name(self) -> str:
        """As the paper names them."""
        plain = self.frames is None
        return f"plain m={self.chunk}" if plain else f"({self.frames},{self.chunk}) {self.reduce} k={self.count}"

    def starts(self, length: int) -> list[list[int]]:
        """First frames of the chunks of every sub-video of a video of so many frames."""
        frames = self.frames or length
        if frames % self.chunk:
            rule = f"chunks of {self.chunk} frames must divide what they are cut from"
            raise ArgumentError("chunk", rule, f"{frames} frames", "Choose a divisor.")
        places = clips(length, frames, self.count).starts if self.frames else (0,)
        return [list(range(place, place + frames, self.chunk)) for place in places]


@final
class ClipLanes(Classifier):
    """Videos (B, T, C, H, W) -> scores (B, lanes, K), lane by lane what Clips of Chunks of the network gives.

    A chunk that several lanes or sub-videos share runs once. work (B, lanes) is what each lane alone would have cost.
    """

    def __init__(self, network: nn.Module, lanes: Sequence[ClipLane]) -> None:
        super().__init__()
        self.network, self.lanes = network, tuple(lanes)
        self.names = tuple(lane.name for lane in self.lanes)
        if not self.names or len(set(self.names)) != len(self.names):
            raise ArgumentError("lanes", "need different names, and at least one", self.names, "Leave out doubles.")

    @property
    def kinds(self) -> Kinds:
        """One for each lane: as the network's, or probabilities for the max."""
        return tuple(kinds_of_reduction(self.network, lane.reduce)[0] for lane in self.lanes)

    def score(self, x: Tensor) -> Scored:
        """(B, T, C, H, W) -> (B, lanes, K)."""
        length, kinds = frames_of(x), kinds_of(self.network)
        found: dict[int, Tensor] = {}
        for chunk, starts in _distinct(self.lanes, length).items():
            cut = torch.stack([x[:, start : start + chunk] for start in starts], 1)
            found[chunk] = score(self.network, cut.flatten(0, 1)).scores.view(len(x), len(starts), -1)
        scores, work = [], []
        for lane in self.lanes:
            distinct, wanted = _distinct(self.lanes, length)[lane.chunk], lane.starts(length)
            index = torch.tensor([[distinct.index(start) for start in one] for one in wanted], device=x.device)
            scores.append(combined(found[lane.chunk][:, index].mean(2), lane.reduce, kinds))
            work.append(index.numel())
        return Scored(torch.stack(scores, 1), torch.tensor(work, device=x.device).expand(len(x), -1))


@lru_cache(maxsize=64)
def _distinct(lanes: tuple[ClipLane, ...], length: int) -> dict[int, tuple[int, ...]]:
    """Chunk length -> every first frame that any lane needs, once."""
    found: dict[int, set[int]] = {}
    for lane in lanes:
        found.setdefault(lane.chunk, set()).update(start for one in lane.starts(length) for start in one)
    return {chunk: tuple(sorted(starts)) for chunk, starts in found.items()}

"""Videos (B, T, C, H, W): logits averaged over consecutive chunks, reduced over sub-videos (Joshi et al. 2022)."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, kinds_of
from ringfence.classifiers.kinds import Kinds
from ringfence.classifiers.patches import Reduction, check_reduction, kinds_of_reduction, reduced
from ringfence.errors import ArgumentError
from ringfence.operators import check_clips, clips


@final
class Chunks(Classifier):
    """Mean logits of a network over consecutive chunks of so many frames: the base classifier of Smooth-Reduce-(t,m).

    network: (B, frames, C, H, W) -> (B, K). The frames must divide the video: none is left out in silence.
    """

    def __init__(self, network: nn.Module, frames: int) -> None:
        super().__init__()
        if frames < 1:
            raise ArgumentError("frames", "a chunk has at least one frame", frames, "Use e.g. 8 or 16.")
        self.network, self.frames = network, frames

    @property
    def kinds(self) -> Kinds:
        """As the network's."""
        return kinds_of(self.network)

    def score(self, x: Tensor) -> Scored:
        """(B, T, C, H, W) -> (B, K); T / frames forwards."""
        length = frames_of(x)
        if length % self.frames:
            rule = f"chunks of {self.frames} frames must divide the video"
            raise ArgumentError("frames", rule, f"{length} frames", "Choose a divisor, or cut the video.")
        return reduced(self.network, x.reshape(len(x), -1, self.frames, *x.shape[2:]), "mean")


@final
class Clips(Classifier):
    """A classifier reduced over count overlapping sub-videos of so many frames, spread evenly or on a stride.

    This is the ``input`` mode (one noise draw on the video); for noise on every sub-video lift by the same clips
    and give Patches what is left.
    """

    def __init__(
        self,
        classifier: nn.Module,
        frames: int,
        count: int | None = None,
        stride: int | None = None,
        reduce: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_reduction(reduce)
        check_clips(frames, count, stride)
        self.classifier, self.reduce = classifier, reduce
        self.frames, self.count, self.stride = frames, count, stride

    @property
    def kinds(self) -> Kinds:
        """As the classifier's, or probabilities for the max."""
        return kinds_of_reduction(self.classifier, self.reduce)

    def score(self, x: Tensor) -> Scored:
        """(B, T, C, H, W) -> (B, K)."""
        cut = clips(frames_of(x), self.frames, self.count, self.stride)
        return reduced(self.classifier, cut(x), self.reduce)


def frames_of(x: Tensor) -> int:
    """T of a batch of videos."""
    if x.dim() != 5:
        raise ArgumentError("input", "must be videos (B, T, C, H, W)", tuple(x.shape), "Stack the frames first.")
    return x.shape[1]

"""One network on many patches, or parts of a video, acts as an ensemble (Smooth-Reduce, Joshi et al. 2022)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, final, get_args

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, kinds_of, score
from ringfence.classifiers.kinds import LOGITS, PROBABILITIES, Kinds, probabilities
from ringfence.errors import ArgumentError, ClassifierError, check_word
from ringfence.operators import Crops as Crops
from ringfence.operators import check_clips, clips

Reduction = Literal["mean", "max"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)


@final
class Patches(Classifier):
    """Mean logits, or the largest softmax score per class, of one classifier over the patches of a batch.

    operator: (B, *shape) -> patches (B, k, C, h, w), e.g. Crops(size=32, resize=36, count=4) on images, or what a
    noise mode leaves to do (``ringfence.lift.noise_place``). All patches of a batch run as one batch.
    """

    def __init__(self, classifier: nn.Module, operator: Callable[[Tensor], Tensor], reduce: Reduction = "mean") -> None:
        super().__init__()
        check_word("reduce", reduce, REDUCTIONS, "Use mean.")
        self.classifier, self.operator, self.reduce = classifier, operator, reduce

    @property
    def kinds(self) -> Kinds:
        """As the classifier's, or probabilities for the max."""
        return kinds_of_reduction(self.classifier, self.reduce)

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, K) or (B, lanes, K); k patches are k forwards."""
        return reduced(self.classifier, self.operator(x), self.reduce)


def reduced(classifier: nn.Module, patches: Tensor, reduce: str) -> Scored:
    """Scores of (B, k, *shape) patches, reduced over k; a row with an invalid patch is invalid as a whole."""
    if patches.dim() < 3:
        rule = "must be a batch of stacked patches (B, k, ...)"
        raise ClassifierError("patches", rule, tuple(patches.shape), "Check that lift and operator belong together.")
    rows, count = patches.shape[:2]
    every, work = score(classifier, patches.flatten(0, 1))
    every = every.view(rows, count, *every.shape[1:])
    total = work * count if isinstance(work, int) else work.view(rows, count, *work.shape[1:]).sum(1)
    return Scored(combined(every, reduce, kinds_of(classifier)), total)


def kinds_of_reduction(classifier: nn.Module, reduce: str) -> Kinds:
    """What reducing a classifier's scores gives."""
    kinds = kinds_of(classifier)
    return kinds if reduce == "mean" else PROBABILITIES * len(kinds)


def combined(every: Tensor, reduce: str, kinds: Kinds = LOGITS) -> Tensor:
    """Scores (B, k, ..., K) of k patches as one: mean logits, or the largest softmax score per class.

    Those largest scores sum to more than 1; as a distribution (``kinds.probabilities``) the sum is divided out.
    """
    one = every.mean(1) if reduce == "mean" else probabilities(every, kinds).amax(1)
    return one.masked_fill(~torch.isfinite(every).all(1).all(-1, keepdim=True), torch.nan)


@final
class Chunks(Classifier):
    """Mean logits of a network over consecutive chunks of so many frames: the base classifier of Smooth-Reduce-(t,m).

    network: (B, frames, C, H, W) -> (B, K). The frames must divide the video: none is left out in silence.
    """

    wraps = "network"

    def __init__(self, network: nn.Module, frames: int) -> None:
        super().__init__()
        if frames < 1:
            raise ArgumentError("frames", "a chunk has at least one frame", frames, "Use e.g. 8 or 16.")
        self.network, self.frames = network, frames

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
        check_word("reduce", reduce, REDUCTIONS, "Use mean.")
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

"""Windows cut from images and videos: patches, crops that are upsampled again, sub-videos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ringfence.errors import ArgumentError
from ringfence.operators.norms import Operator, root, up
from ringfence.operators.separable import Separable, Stack, crop_matrix

Position = tuple[int, int]
"""Top row and left column of a patch."""


@final
class Windows(Operator):
    """x -> (A P_1 B x, ..., A P_k B x): B before (resize, pad), P_i a crop of size, A after (upsample).

    (..., C, H, W) -> (..., k, C, h, w). shape (H, W) is that of the input; None stands for the identity.
    """

    name: ClassVar[str] = "windows"

    def __init__(
        self,
        shape: tuple[int, int],
        positions: Sequence[Position],
        size: tuple[int, int],
        before: Separable | None = None,
        after: Separable | None = None,
    ) -> None:
        self.shape, self.positions, self.size = shape, tuple(positions), size
        self.before, self.after = before, after
        height, width = shape if before is None else (len(before.rows), len(before.columns))
        if not self.positions:
            raise ArgumentError("patches", "needs at least one patch", "none", "Ask for 4, or leave the count out.")
        for top, left in self.positions:
            crop_matrix(height, top, size[0])
            crop_matrix(width, left, size[1])

    def __call__(self, x: Tensor) -> Tensor:
        """(..., C, H, W) -> (..., k, C, h, w)."""
        if tuple(x.shape[-2:]) != self.shape:
            rule = f"must be images of {self.shape[0]} x {self.shape[1]} pixels"
            raise ArgumentError("input", rule, tuple(x.shape), "Certify one size of image at a time.")
        x = x if self.before is None else self.before(x)
        height, width = self.size
        cut = [x[..., top : top + height, left : left + width] for top, left in self.positions]
        patches = torch.stack(cut, dim=-4)
        return patches if self.after is None else self.after(patches)

    @cached_property
    def explicit(self) -> Stack:
        """The same map as one matrix per axis and patch."""
        tops, lefts = sorted({top for top, _ in self.positions}), sorted({left for _, left in self.positions})
        before = self.before or Separable(np.eye(self.shape[0]), np.eye(self.shape[1]))
        rows = [before.rows[top : top + self.size[0]] for top in tops]
        columns = [before.columns[left : left + self.size[1]] for left in lefts]
        if self.after is not None:
            rows, columns = [self.after.rows @ r for r in rows], [self.after.columns @ c for c in columns]
        return Stack(rows, columns, [(tops.index(top), lefts.index(left)) for top, left in self.positions])

    @property
    def room(self) -> tuple[int, int]:
        """The last top row and left column a patch may begin at."""
        height, width = self.shape if self.before is None else (len(self.before.rows), len(self.before.columns))
        return height - self.size[0], width - self.size[1]

    @property
    def norm_bound(self) -> float:
        """The norm of the stack, bounded from above."""
        return self.explicit.norm_bound

    @property
    def l1_bound(self) -> float:
        """The l1 norm of the stack, bounded from above."""
        return self.explicit.l1_bound

    @property
    def l1_bound_of_any(self) -> float:
        """k ||A|| ||B|| in l1, wherever the patches lie: k copies of a pixel count k times."""
        before, after = (1.0 if one is None else one.l1_bound for one in (self.before, self.after))
        return up(len(self.positions) * before * after)

    @cached_property
    def norm_of_any(self) -> float:
        """sqrt(k) ||A|| ||B||: holds for the same number of patches wherever they lie, also several times at one
        place, because a crop has norm 1."""
        before = 1.0 if self.before is None else self.before.norm_bound
        after = 1.0 if self.after is None else self.after.norm_bound
        return root(len(self.positions) * before**2 * after**2)

    def crops_alone(self) -> Windows:
        """What is left to do once before has been applied."""
        if self.before is None:
            return self
        return Windows((len(self.before.rows), len(self.before.columns)), self.positions, self.size, None, self.after)

    def settings(self) -> dict[str, Any]:
        """Sizes and positions."""
        return {"name": self.name, "size": list(self.size), "positions": [list(place) for place in self.positions]}


@final
class SubVideos(Operator):
    """x -> (frames starts[i] .. starts[i] + frames - 1)_i: (..., T, C, H, W) -> (..., k, frames, C, H, W)."""

    name: ClassVar[str] = "sub-videos"

    def __init__(self, frames: int, starts: Sequence[int]) -> None:
        if frames < 1 or not starts:
            raise ArgumentError("clips", "needs at least one clip of one frame", (frames, len(starts)), "Ask for more.")
        self.frames, self.starts = frames, tuple(starts)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., T, C, H, W) -> (..., k, frames, C, H, W)."""
        length = x.shape[-4] if x.dim() >= 4 else 0
        if length < max(self.starts) + self.frames or min(self.starts) < 0:
            rule = f"must be videos (T, C, H, W) of at least {max(self.starts) + self.frames} frames"
            raise ArgumentError("clips", rule, tuple(x.shape), "Use shorter or fewer clips.")
        return torch.stack([x[..., start : start + self.frames, :, :, :] for start in self.starts], dim=-5)

    @property
    def norm_bound(self) -> float:
        """sqrt(largest number of sub-videos that share a frame): the stack's Gram matrix counts them."""
        return root(self.l1_bound)

    @property
    def l1_bound(self) -> float:
        """That number itself, exactly."""
        shared = Counter(frame for start in self.starts for frame in range(start, start + self.frames))
        return float(max(shared.values()))

    def settings(self) -> dict[str, Any]:
        """Length and places."""
        return {"name": self.name, "frames": self.frames, "starts": list(self.starts)}


@final
class AlreadyCut(Operator):
    """The identity: the patches are there already, because the lift made them."""

    name: ClassVar[str] = "given"

    def __call__(self, x: Tensor) -> Tensor:
        """x unchanged."""
        return x

    @property
    def norm_bound(self) -> float:
        """Exactly 1."""
        return 1.0


LOUD = 64.0
"""A bit is this or its negative: noise of sigma 8 flips one in 10^15. A flipped one would name another patch of the
same fixed classifier, so that even then no certificate is wrong."""


@final
class PositionStrip:
    """Top rows and left columns as a strip below images (C, H, W): one pixel a bit, row by row, zeros at the end."""

    def __init__(self, shape: tuple[int, int], room: tuple[int, int]) -> None:
        self.shape, self.room = shape, room
        self.bits = max(room).bit_length()

    def write(self, image: Tensor, positions: Sequence[Position]) -> Tensor:
        """(C, H, W) -> (C, H + r, W), r rows being enough for all positions."""
        bits = (torch.tensor(positions).unsqueeze(-1) >> torch.arange(self.bits)) & 1
        channels, width = image.shape[0], image.shape[2]
        strip = image.new_zeros(-(-bits.numel() // (channels * width)) * channels * width)
        strip[: bits.numel()] = LOUD * (2 * bits.flatten() - 1)
        return torch.cat([image, strip.view(-1, channels, width).transpose(0, 1)], 1)

    def read(self, x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Noisy (N, C, H + r, W) -> images (N, C, H, W), tops and lefts (N, count) of count patches each."""
        height = self.shape[0]
        strip = x[:, :, height:].transpose(1, 2).flatten(1)[:, : count * 2 * self.bits]
        bits = (strip > 0).view(len(x), count, 2, self.bits).long()
        found = (bits << torch.arange(self.bits, device=x.device)).sum(-1)
        # What no strip of ours says (a probe's random pixels may) still has to lie within the image.
        tops, lefts = (found[..., axis].clamp(max=self.room[axis]) for axis in (0, 1))
        return x[:, :, :height], tops, lefts


@final
class CropsFromStrip:
    """Noisy images with strips -> patches, each row cut where its own strip says; one pass for the whole batch.

    (B, C, H + r, W), k patches of every image, or (B, k, C, H + r, W), one patch of every copy -> (B, k, C, h, w).
    """

    def __init__(self, places: PositionStrip, windows: Windows, each: int) -> None:
        self.places, self.each = places, each
        self.before, self.size, self.after = windows.before, windows.size, windows.after

    def __call__(self, x: Tensor) -> Tensor:
        """Patches (B, k, C, h, w)."""
        images, tops, lefts = self.places.read(x.flatten(0, -4), self.each)
        images = images if self.before is None else self.before(images)
        every = images.unfold(2, self.size[0], 1).unfold(3, self.size[1], 1)  # a view: (N, C, tops, lefts, h, w)
        row = torch.arange(len(images), device=x.device).unsqueeze(1)
        patches = every[row, :, tops, lefts]
        patches = patches if self.after is None else self.after(patches)
        return patches.reshape(len(x), -1, *patches.shape[2:])

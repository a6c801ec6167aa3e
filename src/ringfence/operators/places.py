"""Places: where an input's patches lie, carried below the image as pixels, so that rows of a batch may differ in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from ringfence.operators.windows import Position, Windows

LOUD = 64.0
"""A bit is this or its negative: noise of sigma 8 flips one in 10^15. A flipped one would name another patch of the
same fixed classifier, so that even then no certificate is wrong."""


@final
class Places:
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
class PlacedCrops:
    """Noisy images with strips -> patches, each row cut where its own strip says; one pass for the whole batch.

    (B, C, H + r, W), k patches of every image, or (B, k, C, H + r, W), one patch of every copy -> (B, k, C, h, w).
    """

    def __init__(self, places: Places, windows: Windows, each: int) -> None:
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

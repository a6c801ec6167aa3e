"""Which patches: sizes, counts and sampling as a user describes them, before the size of an image is known."""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, final

import numpy as np
from torch import Tensor

from ringfence.errors import ArgumentError, check_word
from ringfence.operators.separable import pad, resize
from ringfence.operators.windows import Position, SubVideos, Windows

Sampling = Literal["dense", "random"]


@final
@dataclass(frozen=True)
class Crops:
    """Square patches that a network sees: M_i = P_i Rz (resize or pad, then crop), or crop, then upsample.

    size: side of what the network sees; resize: side the image is brought to first; pad: zeros around it;
    crop: side cut from the image and upsampled to size. Dense: count patches on an even grid, or all on a stride;
    random: uniform with replacement, drawn for every input from the seed and its id, which takes a noise mode
    (``ringfence.lift.noise_place``). Calling dense ones maps (..., C, H, W) to (..., k, C, size, size).
    """

    size: int
    count: int | None = None
    resize: int | None = None
    pad: int = 0
    crop: int | None = None
    stride: int | None = None
    kind: str = "bilinear"
    sampling: Sampling = "dense"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ArgumentError("patches", "needs at least one patch", self.count, "Ask for 4.")
        if self.stride is not None and (self.stride < 1 or self.count is not None or self.sampling == "random"):
            rule = "must be at least 1, and stands instead of a count of dense patches"
            raise ArgumentError("stride", rule, self.stride, "Give a count or a stride.")
        check_word("sampling", self.sampling, ("dense", "random"), "Use dense.")
        if self.crop is not None and (self.resize is not None or self.pad):
            rule = "crop-then-upsample does not resize or pad first"
            raise ArgumentError("crop", rule, asdict(self), "Leave resize and pad out, or crop.")
        if min(self.size, self.crop or 1, self.resize or 1) < 1:
            raise ArgumentError("patch", "sides must be at least 1", asdict(self), "Give positive sizes.")

    def __call__(self, x: Tensor) -> Tensor:
        """(..., C, H, W) -> (..., k, C, size, size), dense patches only."""
        if self.sampling == "random":
            rule = "random patches are drawn once per input, and a batch does not say which inputs its rows are"
            raise ArgumentError("operator", rule, "a batch", "Use lift, rest = noise_place(mode, crops, shape).")
        return self.on(x.shape[-2], x.shape[-1])(x)

    def on(self, height: int, width: int, key: int = 0) -> Windows:
        """The operator for images of this size; with random sampling the patches of this key (an input's id)."""
        return _windows(self, height, width, key if self.sampling == "random" else 0)

    def settings(self) -> dict[str, Any]:
        """Every field, for a run's config."""
        return asdict(self)


@lru_cache(maxsize=256)
def _windows(crops: Crops, height: int, width: int, key: int) -> Windows:
    before, shape = None, (height, width)
    if crops.resize is not None:
        before = resize(shape, (crops.resize, crops.resize), crops.kind)
        shape = (crops.resize, crops.resize)
    if crops.pad:
        before = pad(shape, crops.pad).after(before)
        shape = (shape[0] + 2 * crops.pad, shape[1] + 2 * crops.pad)
    side = crops.crop or crops.size
    after = resize((side, side), (crops.size, crops.size), crops.kind) if crops.crop else None
    if side > min(shape):
        rule = f"must not be larger than the image, {shape[0]} x {shape[1]}"
        raise ArgumentError("patch", rule, side, "Use smaller patches, or resize to something larger first.")
    room = (shape[0] - side, shape[1] - side)
    places = _scattered(crops, room, key) if crops.sampling == "random" else _grid(crops, room)
    return Windows((height, width), places, (side, side), before, after)


def _grid(crops: Crops, room: tuple[int, int]) -> list[Position]:
    if crops.stride is not None:
        tops, lefts = (list(range(0, space + 1, crops.stride)) for space in room)
    else:
        count = crops.count or 4
        few = max(divisor for divisor in range(1, int(count**0.5) + 1) if count % divisor == 0)
        tops, lefts = spread(room[0], few), spread(room[1], count // few)
    return [(top, left) for top in tops for left in lefts]


def _scattered(crops: Crops, room: tuple[int, int], key: int) -> list[Position]:
    packed = blake2b(struct.pack("<2q", crops.seed, key), digest_size=8, person=b"rf-patches").digest()
    draw = np.random.Generator(np.random.SFC64(int.from_bytes(packed, "little")))
    count = crops.count or 4
    tops, lefts = (draw.integers(0, space + 1, count) for space in room)
    return [(int(top), int(left)) for top, left in zip(tops, lefts, strict=True)]


def spread(room: int, count: int) -> list[int]:
    """count starts from 0 to room, evenly, rounded; a single one in the middle."""
    if count == 1:
        return [room // 2]
    if count > room + 1:
        rule = f"at most {room + 1} different patches fit along an axis"
        raise ArgumentError("patches", rule, count, "Ask for fewer, or resize to something larger.")
    return [int(np.floor(i * room / (count - 1) + 0.5)) for i in range(count)]


def check_clips(frames: int, count: int | None, stride: int | None) -> None:
    """What can be refused before the video is seen."""
    for name, value in (("frames", frames), ("count", count), ("stride", stride)):
        if value is not None and value < 1:
            raise ArgumentError("clips", f"{name} must be at least 1", value, "Ask for e.g. 4 clips of 64 frames.")


def clips(length: int, frames: int, count: int | None = None, stride: int | None = None) -> SubVideos:
    """count sub-videos of so many frames, spread evenly over a video of length frames, or on a stride from frame 0."""
    check_clips(frames, count, stride)
    if frames > length:
        rule = f"must not be longer than the video, {length} frames"
        raise ArgumentError("clips", rule, frames, "Use shorter clips.")
    if stride is None:
        return SubVideos(frames, spread(length - frames, count or 4))
    starts = list(range(0, length - frames + 1, stride))
    if count is not None and count > len(starts):
        rule = f"at most {len(starts)} clips of {frames} frames, {stride} apart, fit into {length} frames"
        raise ArgumentError("clips", rule, count, "Use fewer or shorter clips, or a smaller stride.")
    return SubVideos(frames, starts[:count])

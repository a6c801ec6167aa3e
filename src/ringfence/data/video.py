"""Clips whose class is the motion, rendered from real MNIST digits when they are read: digit and index decide all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.class_names import MOTIONS
from ringfence.data.dataset import EIGHT_BIT, Dataset
from ringfence.data.originals import read_mnist
from ringfence.digests import EARLIER, hashed, write_digest
from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

SIDE = 32
"""Pixels of a frame; the digit is drawn at about half of that."""

Pose = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
"""Centre x and y in pixels, scale and angle of the digit, each (frames,)."""


def motion_dataset(path: str | Path, split: str = "test", frames: int = 64, count: int = 800) -> Dataset:
    """``mnist-motion:PATH``: clip i shows digit i of the split in motion i mod 8; x (frames, 1, 32, 32)."""
    if frames not in (16, 32, 64, 128):
        raise ArgumentError("frames", "must be 16, 32, 64 or 128", frames, "Use 64.")
    digits, _ = read_mnist(Path(path), split)
    if not 1 <= count <= len(digits):
        raise ArgumentError("count", f"must be between 1 and {len(digits)} clips", count, "Ask for fewer.")
    used = np.ascontiguousarray(digits[:count])
    earlier = hashed([used.tobytes(), f"{split}|{frames}|{SIDE}|{MOTIONS}".encode()])
    digest = write_digest({"inputs": earlier, EARLIER: earlier})

    def read(position: int) -> Tensor:
        clip = render(used[position], MOTIONS[position % len(MOTIONS)], frames, position)
        return torch.from_numpy(clip).float().div(255).unsqueeze(1)

    def name_of(position: int) -> str:
        return f"{MOTIONS[position % len(MOTIONS)]}/{position}"

    return Dataset(
        name="mnist-motion",
        ids=list(range(count)),
        labels=[position % len(MOTIONS) for position in range(count)],
        positions=list(range(count)),
        read=read,
        name_of=name_of,
        shape=(frames, 1, SIDE, SIDE),
        identify=lambda: digest,
        num_classes=len(MOTIONS),
        class_names=MOTIONS,
        lattice=EIGHT_BIT,
    )


def render(digit: NDArray[np.uint8], motion: str, frames: int, seed: int) -> NDArray[np.uint8]:
    """A clip (frames, SIDE, SIDE) of one digit (28, 28); where the motion begins comes from the seed."""
    x, y, scale, angle = POSES[motion](np.arange(frames, dtype=np.float64), np.random.Generator(np.random.PCG64(seed)))
    row, column = np.meshgrid(np.arange(SIDE) + 0.5, np.arange(SIDE) + 0.5, indexing="ij")
    # Pixels wrap around: a digit that leaves on one side comes back on the other.
    down, right = (_wrapped(axis - at[:, None, None]) for axis, at in ((row, y), (column, x)))
    cosine, sine = (part[:, None, None] for part in (np.cos(angle) / scale, np.sin(angle) / scale))
    source_row, source_column = cosine * down - sine * right + 13.5, sine * down + cosine * right + 13.5
    return np.clip(np.rint(_bilinear(digit.astype(np.float64), source_row, source_column)), 0, 255).astype(np.uint8)


def _wrapped(offset: FloatArray) -> FloatArray:
    return np.asarray((offset + SIDE / 2) % SIDE - SIDE / 2)


def _bilinear(image: FloatArray, row: FloatArray, column: FloatArray) -> FloatArray:
    """Values between pixels; zero outside."""
    padded = np.pad(image, 1)
    row, column = np.clip(row + 1, 0, 28.999), np.clip(column + 1, 0, 28.999)
    top, left = row.astype(np.int64), column.astype(np.int64)
    down, right = row - top, column - left
    upper = padded[top, left] * (1 - right) + padded[top, left + 1] * right
    lower = padded[top + 1, left] * (1 - right) + padded[top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def _moving(dx: float, dy: float) -> Callable[[FloatArray, np.random.Generator], Pose]:
    def pose(t: FloatArray, draw: np.random.Generator) -> Pose:
        x, y = draw.uniform(0, SIDE, 2)
        return x + dx * t, y + dy * t, 0.6 + 0 * t, 0 * t

    return pose


def _rotating(t: FloatArray, draw: np.random.Generator) -> Pose:
    x, y = draw.uniform(SIDE / 3, 2 * SIDE / 3, 2)
    return x + 0 * t, y + 0 * t, 0.8 + 0 * t, draw.uniform(0, 2 * np.pi) + np.pi / 16 * t


def _scaling(direction: int) -> Callable[[FloatArray, np.random.Generator], Pose]:
    def pose(t: FloatArray, draw: np.random.Generator) -> Pose:
        x, y = draw.uniform(SIDE / 3, 2 * SIDE / 3, 2)
        phase = (draw.uniform() + direction * t / 16) % 1
        return x + 0 * t, y + 0 * t, 0.35 * 3.2**phase, 0 * t

    return pose


def _bouncing(t: FloatArray, draw: np.random.Generator) -> Pose:
    def between(start: float) -> FloatArray:
        return np.asarray(9 + np.abs((start + t) % 28 - 14))  # a triangle wave, one pixel a frame

    x, y = draw.uniform(0, 28, 2)
    return between(x), between(y), 0.6 + 0 * t, 0 * t


POSES: dict[str, Callable[[FloatArray, np.random.Generator], Pose]] = {
    "left": _moving(-1, 0),
    "right": _moving(1, 0),
    "up": _moving(0, -1),
    "down": _moving(0, 1),
    "rotating": _rotating,
    "growing": _scaling(1),
    "shrinking": _scaling(-1),
    "bouncing": _bouncing,
}

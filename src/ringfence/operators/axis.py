"""One-dimensional linear maps as explicit matrices: everything an image operator does, it does axis by axis."""

from __future__ import annotations

import numpy as np

from ringfence.errors import ArgumentError
from ringfence.types import FloatArray

RESIZES = ("bilinear", "bicubic")
"""Resizes that are linear maps, so that a certified norm exists."""

_CUBIC = -0.75
"""The free parameter of Keys's cubic convolution, as torch and OpenCV set it."""


def resize_matrix(source: int, target: int, kind: str = "bilinear") -> FloatArray:
    """(target, source): interpolation with half-pixel centres, as torch's ``interpolate(align_corners=False)``."""
    if kind not in RESIZES:
        rule = f"must be a linear resize, {' or '.join(RESIZES)}"
        raise ArgumentError("resize kind", rule, repr(kind), "Only linear maps have a certified norm.")
    if source < 1 or target < 1:
        raise ArgumentError("resize", "needs at least one pixel", (source, target), "Give a positive size.")
    matrix = np.zeros((target, source))
    centre = (np.arange(target) + 0.5) * source / target - 0.5
    centre = np.maximum(centre, 0.0) if kind == "bilinear" else centre
    first = np.floor(centre).astype(np.int64)
    offset = centre - first
    taps = _linear(offset) if kind == "bilinear" else _cubic(offset)
    for place, weight in taps.items():
        np.add.at(matrix, (np.arange(target), np.clip(first + place, 0, source - 1)), weight)
    return matrix


def pad_matrix(source: int, each_side: int) -> FloatArray:
    """(source + 2 * each_side, source): zeros around."""
    if each_side < 0:
        raise ArgumentError("pad", "must not be negative", each_side, "0 pads nothing.")
    return np.eye(source + 2 * each_side, source, -each_side)


def crop_matrix(source: int, start: int, size: int) -> FloatArray:
    """(size, source): entries start .. start + size - 1."""
    if size < 1 or start < 0 or start + size > source:
        rule = f"must lie within the {source} pixels there are"
        raise ArgumentError("patch", rule, f"{size} from {start} on", "Use a smaller patch or resize first.")
    return np.eye(size, source, start)


def _linear(offset: FloatArray) -> dict[int, FloatArray]:
    return {0: 1 - offset, 1: offset}


def _cubic(offset: FloatArray) -> dict[int, FloatArray]:
    """Keys 1981: |t|^3 (a+2) - |t|^2 (a+3) + 1 below 1, a (|t|^3 - 5 |t|^2 + 8 |t| - 4) up to 2."""

    def near(t: FloatArray) -> FloatArray:
        return ((_CUBIC + 2) * t - (_CUBIC + 3)) * t * t + 1

    def far(t: FloatArray) -> FloatArray:
        return _CUBIC * (((t - 5) * t + 8) * t - 4)

    return {-1: far(1 + offset), 0: near(offset), 1: near(1 - offset), 2: far(2 - offset)}

"""Operators made of one matrix per axis: resizing, padding, and stacks of such maps.

Everything an image operator does, it does axis by axis, by an explicit matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ringfence.errors import ArgumentError
from ringfence.operators.norms import Operator, Tensors, column_sum_bound, norm_bound, root, stack_bound
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


@final
class Separable(Operator):
    """X -> R X C^T on every channel: (..., H, W) -> (..., h, w); rows R (h, H), columns C (w, W)."""

    name: ClassVar[str] = "separable"

    def __init__(self, rows: FloatArray, columns: FloatArray) -> None:
        self.rows, self.columns = rows, columns
        self._rows, self._columns = Tensors(rows), Tensors(columns.T.copy())

    def __call__(self, x: Tensor) -> Tensor:
        """(..., H, W) -> (..., h, w)."""
        return self._rows.like(x) @ x @ self._columns.like(x)

    def after(self, first: Separable | None) -> Separable:
        """This map applied to the outcome of first."""
        return self if first is None else Separable(self.rows @ first.rows, self.columns @ first.columns)

    @cached_property
    def norm_bound(self) -> float:
        """||R|| ||C||: the norm of a Kronecker product is the product of the norms."""
        return root(norm_bound(self.rows) ** 2 * norm_bound(self.columns) ** 2)

    @property
    def l1_bound(self) -> float:
        """The product of the largest column sums."""
        return column_sum_bound([self.rows], [self.columns], [(0, 0)])


def resize(shape: tuple[int, int], target: tuple[int, int], kind: str = "bilinear") -> Separable:
    """Bilinear or bicubic interpolation of (H, W) images to the target size."""
    return Separable(resize_matrix(shape[0], target[0], kind), resize_matrix(shape[1], target[1], kind))


def pad(shape: tuple[int, int], each_side: int) -> Separable:
    """Zeros around (H, W) images."""
    return Separable(pad_matrix(shape[0], each_side), pad_matrix(shape[1], each_side))


@final
class Stack(Operator):
    """x -> (M_1 x, ..., M_k x), M_i = rows[a_i] (x) columns[b_i]: (..., C, H, W) -> (..., k, C, h, w).

    rows and columns hold every distinct matrix once; pairs (a_i, b_i) say which two make patch i.
    """

    name: ClassVar[str] = "stack"

    def __init__(
        self, rows: Sequence[FloatArray], columns: Sequence[FloatArray], pairs: Sequence[tuple[int, int]]
    ) -> None:
        self.rows, self.columns, self.pairs = tuple(rows), tuple(columns), tuple(pairs)
        self._parts = [Separable(rows[a], columns[b]) for a, b in self.pairs]

    def __call__(self, x: Tensor) -> Tensor:
        """(..., C, H, W) -> (..., k, C, h, w)."""
        return torch.stack([part(x) for part in self._parts], dim=-4)

    @cached_property
    def norm_bound(self) -> float:
        """sqrt(lambda_max(sum_i M_i^T M_i)), bounded from above."""
        return stack_bound(self.rows, self.columns, self.pairs)

    @property
    def l1_bound(self) -> float:
        """The largest column sum of the whole stack: patches that share a pixel add up."""
        return column_sum_bound(self.rows, self.columns, self.pairs)

    def dense(self) -> FloatArray:
        """All of it as one matrix (k h w, H W): for tests on small sizes."""
        return np.concatenate([np.kron(self.rows[a], self.columns[b]) for a, b in self.pairs])

    def polar(self) -> tuple[Stack, Colour]:
        """M_i = S_i U_i with U_i a partial isometry and S_i = (M_i M_i^T)^(1/2), patch by patch.

        S_i (U_i x + w) has the distribution of M_i (x + z) for standard normal w and z: independent noise on k copies
        of the input is the lift by the U_i. sum_i U_i^T U_i = sum_i M_i^+ M_i.
        """
        rows, columns = [_polar(one) for one in self.rows], [_polar(one) for one in self.columns]
        isometries = Stack([u for _, u in rows], [u for _, u in columns], self.pairs)
        return isometries, Colour([s for s, _ in rows], [s for s, _ in columns], self.pairs)


@final
class Colour(Operator):
    """(y_1, ..., y_k) -> (S_1 y_1, ..., S_k y_k): (..., k, C, h, w) to the same shape."""

    name: ClassVar[str] = "colour"

    def __init__(
        self, rows: Sequence[FloatArray], columns: Sequence[FloatArray], pairs: Sequence[tuple[int, int]]
    ) -> None:
        self._matrices = tuple(rows), tuple(columns)
        self._rows = Tensors(np.stack([rows[a] for a, _ in pairs])[:, None])
        self._columns = Tensors(np.stack([columns[b].T for _, b in pairs])[:, None])

    def __call__(self, x: Tensor) -> Tensor:
        """(..., k, C, h, w) -> (..., k, C, h, w)."""
        return self._rows.like(x) @ x @ self._columns.like(x)

    @cached_property
    def norm_bound(self) -> float:
        """At least the largest ||S_i||."""
        rows, columns = (max(norm_bound(one) for one in matrices) for matrices in self._matrices)
        return root(rows**2 * columns**2)


def _polar(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(S, U) of M = S U: S (m, m) symmetric, U (m, n); U leaves out the directions M does not see.

    A direction kept or dropped by rounding changes which classifier is certified, by rounding, and nothing else:
    the certificate uses the norm of this very U.
    """
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    seen = values > 1e-9 * values.max(initial=0.0)
    left, values, right = left[:, seen], values[seen], right[seen]
    return (left * values) @ left.T, left @ right

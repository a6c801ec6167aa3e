"""Operator: an explicit linear map on images or videos; and certified upper bounds on its norm: never below the true
value, above it by rounding alone.

A floating-point Cholesky factorisation of t I - G that runs to its end proves lambda_max(G) <= t, up to an explicit
rounding term (Rump, Verification of positive definiteness, 2006; Higham, Accuracy and Stability, theorem 10.3).
Powers and eigenvalue solvers only suggest t: if the suggestion is too small, the factorisation breaks down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ringfence.types import FloatArray


class Operator(ABC):
    """A linear map on the last axes of a tensor; leading axes are batch. Subclasses are final."""

    name: ClassVar[str]

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """(..., *shape) -> (..., *mapped shape), in the precision of x."""

    @property
    @abstractmethod
    def norm_bound(self) -> float:
        """An upper bound on the largest singular value, never below it."""

    @property
    def l1_bound(self) -> float | None:
        """An upper bound on the l1 norm, the largest column sum of absolute values; None where nobody has one."""
        return None

    def settings(self) -> dict[str, Any]:
        """Name and parameters, for a run's config."""
        return {"name": self.name}


class Tensors:
    """A matrix as tensors, one per device and precision it was asked in: copying at every batch would cost more."""

    def __init__(self, matrix: FloatArray) -> None:
        self._matrix = matrix
        self._made: OrderedDict[tuple[torch.device, torch.dtype], Tensor] = OrderedDict()

    def like(self, x: Tensor) -> Tensor:
        """The matrix where x is and as precise as x."""
        key = (x.device, x.dtype)
        if key not in self._made:
            with torch.inference_mode(False):  # the same tensor serves attacks that need gradients
                self._made[key] = torch.as_tensor(self._matrix).to(x.device, x.dtype)
        return self._made[key]


UNIT = 2.0**-53
DENSE_LIMIT = 1100
"""Largest number of pixels for which a stack of scattered patches is bounded by one dense factorisation."""


def rounding(terms: int) -> float:
    """gamma_n = n u / (1 - n u): the relative error of a sum of n products."""
    return terms * UNIT / (1 - terms * UNIT)


def largest_eigenvalue(gram: FloatArray, error: float = 0.0) -> float:
    """An upper bound on lambda_max of every symmetric matrix within error (in 2-norm) of gram (n, n)."""
    size = len(gram)
    guess = float(np.linalg.eigvalsh(gram)[-1])
    if guess <= 0:
        return float(np.abs(gram).sum(1).max()) + error
    step = 1e-11
    while True:
        top = guess * (1 + step)
        shifted = top * np.eye(size) - gram
        try:
            np.linalg.cholesky(shifted)
        except np.linalg.LinAlgError:
            step *= 4
            continue
        slack = 2 * rounding(size + 2) * float(np.trace(shifted)) + 4 * UNIT * top
        return up(top + slack + error)


def gram_bound(matrices: Sequence[FloatArray], weights: Sequence[float] | None = None) -> float:
    """An upper bound on lambda_max(sum_i w_i A_i^T A_i), for matrices A_i (m, n) and weights w_i >= 0."""
    shares = [1.0] * len(matrices) if weights is None else list(weights)
    size = matrices[0].shape[1]
    total, magnitude = np.zeros((size, size)), np.zeros((size, size))
    for matrix, share in zip(matrices, shares, strict=True):
        total += share * (matrix.T @ matrix)
        magnitude += share * (np.abs(matrix).T @ np.abs(matrix))
    terms = max(len(matrix) for matrix in matrices) + len(matrices) + 2
    return largest_eigenvalue((total + total.T) / 2, 2 * rounding(terms) * float(magnitude.sum(1).max()))


def norm_bound(matrix: FloatArray) -> float:
    """An upper bound on the largest singular value of a matrix."""
    smaller = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    return root(gram_bound([smaller]))


def stack_bound(rows: Sequence[FloatArray], columns: Sequence[FloatArray], pairs: Sequence[tuple[int, int]]) -> float:
    """An upper bound on the norm of the stacked rows[a] (x) columns[b], (a, b) in pairs: its square is
    lambda_max(sum_ab R_a^T R_a (x) C_b^T C_b).

    A full grid of pairs is a Kronecker product of two small matrices, exact in milliseconds. Scattered pairs are one
    dense matrix where that is small; else C_b^T C_b <= ||C_b||^2 I leaves a weighted one-dimensional sum.
    """
    used_rows, used_columns = sorted({a for a, _ in pairs}), sorted({b for _, b in pairs})
    if len(pairs) == len(set(pairs)) == len(used_rows) * len(used_columns):
        down, across = [rows[a] for a in used_rows], [columns[b] for b in used_columns]
        square = len(down) == len(across) and all(map(np.array_equal, down, across))
        vertical = gram_bound(down)
        return root(vertical * (vertical if square else gram_bound(across)))
    if rows[0].shape[1] * columns[0].shape[1] <= DENSE_LIMIT:
        return root(gram_bound([np.kron(rows[a], columns[b]).astype(np.float64) for a, b in pairs]))
    along_columns = gram_bound([rows[a] for a, _ in pairs], [gram_bound([columns[b]]) for _, b in pairs])
    along_rows = gram_bound([columns[b] for _, b in pairs], [gram_bound([rows[a]]) for a, _ in pairs])
    return root(min(along_columns, along_rows))


def column_sum_bound(
    rows: Sequence[FloatArray], columns: Sequence[FloatArray], pairs: Sequence[tuple[int, int]]
) -> float:
    """An upper bound on the l1 norm of the stacked rows[a] (x) columns[b], (a, b) in pairs: its largest column sum of
    absolute values. That of pixel (i, j) is sum_ab (sum_k |R_a[k, i]|) (sum_k |C_b[k, j]|)."""
    down, across = ([np.abs(one).sum(0) for one in matrices] for matrices in (rows, columns))
    total = np.sum([np.multiply.outer(down[a], across[b]) for a, b in pairs], axis=0)
    terms = max(map(len, rows)) + max(map(len, columns)) + len(pairs) + 4
    return up(float(total.max()) * (1 + 2 * rounding(terms)))


def root(square: float) -> float:
    """The square root, rounded up; products of two bounds may have lost a unit on the way."""
    return up(float(np.sqrt(square * (1 + 8 * UNIT))))


def up(value: float) -> float:
    """The next larger number, a few times: covers the rounding of the last additions."""
    return value * (1 + 8 * UNIT) if value else 0.0

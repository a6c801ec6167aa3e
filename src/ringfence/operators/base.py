"""Operator: an explicit linear map on images or videos that knows a certified bound on its norm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Any, ClassVar

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

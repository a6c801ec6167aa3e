"""Noise: what is added to the lifted input. Every chunk of draws comes from one 64-bit key and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ringfence.errors import ArgumentError


class Noise(ABC):
    """A distribution on input space; sigma is the scale that mechanisms turn probabilities into radii with."""

    name: ClassVar[str]
    sigma: float

    @abstractmethod
    def fill(self, out: Tensor, key: int) -> None:
        """Overwrite out (rows, *shape), float32 and contiguous, with the draws of this 64-bit key."""

    def settings(self) -> dict[str, Any]:
        """Name and parameters, for the run's config."""
        return {"name": self.name, "sigma": self.sigma}


@final
@dataclass(frozen=True)
class Gaussian(Noise):
    """e ~ N(0, sigma^2 I), drawn in float32: half precision would not be Gaussian.

    On the CPU NumPy's SFC64 is seeded with all 64 bits (torch's own CPU generator keeps 32, so two
    chunks could share a stream); on CUDA torch's Philox takes the key whole.
    """

    sigma: float
    name: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.sigma) and self.sigma > 0):
            raise ArgumentError("sigma", "must be a positive number", self.sigma, "Give e.g. 0.25 ([0,1] pixel units).")

    def fill(self, out: Tensor, key: int) -> None:
        """Standard normals times sigma."""
        if out.device.type == "cpu":
            generator = np.random.Generator(np.random.SFC64(key))
            generator.standard_normal(out=out.numpy(), dtype=np.float32)
            out.mul_(self.sigma)
        else:
            out.normal_(std=self.sigma, generator=_generator(str(out.device)).manual_seed(key))


@lru_cache(maxsize=8)
def _generator(device: str) -> torch.Generator:
    """One generator per device, seeded anew for every chunk: making one costs more than drawing."""
    return torch.Generator(device)

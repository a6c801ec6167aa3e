"""The families of noise: Gaussian, certified in l2, and uniform and Laplace, certified in l1, from random bits.

Two 32-bit words make two Gaussian numbers, one word a number of the others.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ringfence.noise.base import FamilyNoise
from ringfence.stats.noise_law import DECAY, GAUSSIAN, HALF_WIDTH, LAPLACE, UNIFORM


@final
@dataclass(frozen=True)
class Gaussian(FamilyNoise):
    """e ~ N(0, sigma^2 I), certified in l2."""

    name: ClassVar[str] = GAUSSIAN

    def fill_on_host(self, out: Tensor, keys: Sequence[int]) -> None:
        """Standard normals times sigma."""
        _box_muller(out, keys, self.sigma)

    def standard(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Standard normals."""
        return torch.randn(tuple(shape), generator=generator, dtype=torch.float32, device=generator.device)


def _words(keys: Sequence[int], count: int) -> Tensor:
    """Words of SFC64, int32 (keys, 2 count), each key's one after the other."""
    return torch.from_numpy(np.stack([np.random.SFC64(key).random_raw(count) for key in keys]).view(np.int32))


@torch.inference_mode()
def _box_muller(out: Tensor, keys: Sequence[int], sigma: float) -> None:
    """sigma sqrt(-2 ln u) (cos t, sin t) for u uniform on {1..2^31}/2^31 and t on [-pi, pi) (Box and Muller, 1958).

    As torch operations on all cores it takes a third of the time of drawing one number after the other. The
    smallest u gives 6.55 sigma: what lies beyond has probability 6e-11 and is as rare on CUDA.
    """
    numbers = out[0].numel()
    half = (numbers + 1) // 2
    bits = _words(keys, half).view(len(keys), 2, half)
    # Small integers are exact in float32, so that the tail, where u is near 0, keeps its resolution.
    radius = bits[:, 0].bitwise_and(0x7FFFFFFF).float().add_(1).mul_(2.0**-31).log_().mul_(-2 * sigma**2).sqrt_()
    angle = bits[:, 1].float().mul_(math.pi * 2.0**-31)
    flat = out.view(len(keys), numbers)
    torch.mul(radius, angle.cos(), out=flat[:, :half])
    flat[:, half:] = radius.mul_(angle.sin_())[:, : numbers - half]


@dataclass(frozen=True)
class WordNoise(FamilyNoise):
    """Noise of which every number is a function of 32 random bits; subclasses are final and write ``of_words``."""

    @staticmethod
    @abstractmethod
    def of_words(words: Tensor) -> Tensor:
        """Numbers of standard deviation 1, float32, from words that are uniform on all of int32; elementwise."""

    @final
    @torch.inference_mode()
    def fill_on_host(self, out: Tensor, keys: Sequence[int]) -> None:
        """The words of SFC64 one after the other."""
        numbers = out[0].numel()
        words = _words(keys, (numbers + 1) // 2)[:, :numbers]
        torch.mul(self.of_words(words), self.sigma, out=out.view(len(keys), numbers))

    @final
    def standard(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Words of the generator."""
        words = torch.empty(tuple(shape), dtype=torch.int32, device=generator.device)
        return self.of_words(words.random_(-(1 << 31), 1 << 31, generator=generator))


@final
@dataclass(frozen=True)
class Uniform(WordNoise):
    """Coordinates uniform on [-h, h], h = sqrt(3) sigma, and no radius is larger (Yang et al. 2020)."""

    name: ClassVar[str] = UNIFORM

    @staticmethod
    def of_words(words: Tensor) -> Tensor:
        """sqrt(3) (w + 1/2) / 2^31."""
        return words.float().add_(0.5).mul_(HALF_WIDTH * 2.0**-31)


@final
@dataclass(frozen=True)
class Laplace(WordNoise):
    """Coordinates of density exp(-|e| / scale) / (2 scale), scale = sigma / sqrt(2) (Teng et al. 2020)."""

    name: ClassVar[str] = LAPLACE

    @property
    def scale(self) -> float:
        """b of the density."""
        return self.sigma / DECAY

    @staticmethod
    def of_words(words: Tensor) -> Tensor:
        """-ln(u) / sqrt(2), u on {1..2^31}/2^31 from the lower bits, with the sign of the word.

        Small integers are exact in float32, so that the tail keeps its resolution.
        """
        size = words.bitwise_and(0x7FFFFFFF).float().add_(1).mul_(2.0**-31).log_().mul_(1 / DECAY)
        return torch.where(words < 0, size, -size)

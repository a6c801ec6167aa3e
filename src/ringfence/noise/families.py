"""The families of noise: Gaussian, certified in l2, and uniform and Laplace, certified in l1, from random bits.

Two 32-bit words make two Gaussian numbers, one word a number of the others.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

import numpy as np
import torch
from numpy.random import SFC64
from numpy.typing import NDArray
from torch import Tensor

from ringfence.noise.base import FamilyNoise
from ringfence.noise.in_threads import in_threads
from ringfence.stats.noise_law import DECAY, GAUSSIAN, HALF_WIDTH, LAPLACE, UNIFORM


@final
@dataclass(frozen=True)
class Gaussian(FamilyNoise):
    """e ~ N(0, sigma^2 I), certified in l2."""

    name: ClassVar[str] = GAUSSIAN

    def fill_on_host(self, out: Tensor, drawn: Sequence[SFC64]) -> None:
        """Standard normals times sigma."""
        _box_muller(out.view(len(drawn), -1).numpy(), drawn, self.sigma)

    def standard(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Standard normals."""
        return torch.randn(tuple(shape), generator=generator, dtype=torch.float32, device=generator.device)


def _words(drawn: Sequence[SFC64], count: int) -> NDArray[np.int32]:
    """Words, (keys, 2 count), each key's one after the other."""
    return np.concatenate([one.random_raw(count) for one in drawn]).view(np.int32).reshape(len(drawn), -1)


PAIRS: Final = 1 << 15
"""Worked on together: few enough for a cache, many enough that calling costs little; so many times as many for each
thread, or one does it all: two would spend their time handing Python's lock to each other."""
WORTH_A_THREAD: Final = 2


def _box_muller(out: NDArray[np.float32], drawn: Sequence[SFC64], sigma: float) -> None:
    """sigma sqrt(-2 ln u) (cos t, sin t) for u uniform on {1..2^31}/2^31 and t on [-pi, pi) (Box and Muller, 1958).

    In NumPy's float32, whose logarithm, sine and cosine take a third of the time of torch's. The smallest u gives
    6.55 sigma: what lies beyond has probability 6e-11 and is as rare on CUDA.
    """
    numbers = out.shape[1]
    half = (numbers + 1) // 2
    words = _words(drawn, half).reshape(len(drawn), 2, half)
    first, second = out[:, :half], out[:, half:]

    def draw(start: int) -> None:
        pairs = slice(start, start + width)
        # Small integers are exact in float32, so that the tail, where u is near 0, keeps its resolution.
        radius = (words[:, 0, pairs] & np.int32(0x7FFFFFFF)).astype(np.float32)
        radius += np.float32(1)
        radius *= np.float32(2.0**-31)
        np.log(radius, out=radius)
        radius *= np.float32(-2 * sigma**2)
        np.sqrt(radius, out=radius)
        angle = words[:, 1, pairs].astype(np.float32)
        angle *= np.float32(math.pi * 2.0**-31)
        np.multiply(radius, np.cos(angle), out=first[:, pairs])
        there = second[:, pairs]  # of an odd number one less
        np.multiply(radius[:, : there.shape[1]], np.sin(angle, out=angle)[:, : there.shape[1]], out=there)

    width = max(1, PAIRS // len(drawn))
    in_threads(draw, range(0, half, width), len(drawn) * half // (WORTH_A_THREAD * PAIRS))


@dataclass(frozen=True)
class WordNoise(FamilyNoise):
    """Noise of which every number is a function of 32 random bits; subclasses are final and write ``of_words``."""

    @staticmethod
    @abstractmethod
    def of_words(words: Tensor) -> Tensor:
        """Numbers of standard deviation 1, float32, from words that are uniform on all of int32; elementwise."""

    @final
    @torch.inference_mode()
    def fill_on_host(self, out: Tensor, drawn: Sequence[SFC64]) -> None:
        """The words one after the other."""
        numbers = out[0].numel()
        words = torch.from_numpy(_words(drawn, (numbers + 1) // 2))[:, :numbers]
        torch.mul(self.of_words(words), self.sigma, out=out.view(len(drawn), numbers))

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

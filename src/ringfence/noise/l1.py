"""Uniform and Laplace noise, certified in l1: one 32-bit word makes a number."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor

from ringfence.noise.base import FamilyNoise
from ringfence.stats.noise_law import DECAY, HALF_WIDTH, LAPLACE, UNIFORM


@dataclass(frozen=True)
class WordNoise(FamilyNoise):
    """Noise of which every number is a function of 32 random bits; subclasses are final and write ``of_words``."""

    @staticmethod
    @abstractmethod
    def of_words(words: Tensor) -> Tensor:
        """Numbers of standard deviation 1, float32, from words that are uniform on all of int32; elementwise."""

    @final
    @torch.inference_mode()
    def fill_on_host(self, out: Tensor, key: int) -> None:
        """The words of SFC64 one after the other."""
        words = np.random.SFC64(key).random_raw((out.numel() + 1) // 2).view(np.int32)[: out.numel()]
        torch.mul(self.of_words(torch.from_numpy(words)), self.sigma, out=out.view(-1))

    @final
    def standard(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """Words of the generator."""
        words = torch.empty(tuple(shape), dtype=torch.int32, device=generator.device)
        return self.of_words(words.random_(-(1 << 31), 1 << 31, generator=generator))


@final
@dataclass(frozen=True)
class Uniform(WordNoise):
    """Coordinates uniform on [-half_width, half_width], half_width = sqrt(3) sigma (Yang et al. 2020)."""

    name: ClassVar[str] = UNIFORM

    @property
    def half_width(self) -> float:
        """No radius is larger."""
        return HALF_WIDTH * self.sigma

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

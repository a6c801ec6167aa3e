"""Noise: what is added to the lifted input."""

from ringfence.noise.base import NOISES, Noise, noise_with
from ringfence.noise.gaussian import Gaussian
from ringfence.noise.l1 import Laplace, Uniform

NOISES.update({one.name: one for one in (Gaussian, Uniform, Laplace)})

__all__ = ["NOISES", "Gaussian", "Laplace", "Noise", "Uniform", "noise_with"]

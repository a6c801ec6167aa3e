"""Noise: what is added to the lifted input."""

from ringfence.noise.base import NOISES, Noise, noise_with
from ringfence.noise.families import Gaussian, Laplace, Uniform

NOISES.update({one.name: one for one in (Gaussian, Uniform, Laplace)})

__all__ = ["NOISES", "Gaussian", "Laplace", "Noise", "Uniform", "noise_with"]

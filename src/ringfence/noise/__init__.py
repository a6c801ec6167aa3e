"""Noise: what is added to the lifted input."""

from ringfence.noise.gaussian import Gaussian, Noise

__all__ = ["Gaussian", "Noise"]

"""Noise: what is added to the lifted input."""

from collections.abc import Callable

from ringfence.errors import ArgumentError
from ringfence.noise.gaussian import Gaussian, Noise
from ringfence.stats.noise_law import NoiseLaw

NOISES: dict[str, Callable[[float], Noise]] = {Gaussian.name: Gaussian}
"""What draws each family, made from its scale."""

__all__ = ["NOISES", "Gaussian", "Noise", "noise_of", "noise_with"]


def noise_with(family: str, scale: float) -> Noise:
    """The noise of a family at this scale."""
    if family not in NOISES:
        rule, remedy = f"must be one of {', '.join(NOISES)}", "Use gaussian, or register what draws it."
        raise ArgumentError("noise", rule, repr(family), remedy)
    return NOISES[family](scale)


def noise_of(law: NoiseLaw) -> Noise:
    """The noise that has this law."""
    return noise_with(law.family, law.scale)

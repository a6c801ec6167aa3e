"""Noise: what is added to the lifted input."""

from ringfence.errors import ArgumentError
from ringfence.noise.gaussian import Gaussian, Noise
from ringfence.stats.noise_law import NoiseLaw

NOISES = {Gaussian.name: Gaussian}
"""What draws each family, made from its scale, form and lattice."""

__all__ = ["NOISES", "Gaussian", "Noise", "noise_of"]


def noise_of(law: NoiseLaw) -> Noise:
    """The noise that has this law."""
    if law.family not in NOISES:
        rule, remedy = f"must be one of {', '.join(NOISES)}", "Add what draws it to noise.NOISES."
        raise ArgumentError("noise", rule, law.family, remedy)
    return NOISES[law.family](law.scale, law.form, law.lattice)

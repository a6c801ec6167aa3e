"""Noise: what is added to the lifted input."""

from collections.abc import Callable
from difflib import get_close_matches

from ringfence.errors import ArgumentError
from ringfence.noise.base import Noise
from ringfence.noise.gaussian import Gaussian
from ringfence.noise.l1 import Laplace, Uniform
from ringfence.stats.noise_law import AUTO, FLOAT

NOISES: dict[str, Callable[..., Noise]] = {one.name: one for one in (Gaussian, Uniform, Laplace)}
"""What draws each family, made from its scale, and from form and lattice where it is not drawn in float32."""

__all__ = ["NOISES", "Gaussian", "Laplace", "Noise", "Uniform", "noise_with"]


def noise_with(family: str, scale: float, form: str = AUTO, lattice: int | None = None) -> Noise:
    """The noise of a family at this scale, in this form; one that is made from its scale alone is float."""
    if family not in NOISES:
        near = ["gaussian"] if family == "normal" else get_close_matches(family, NOISES, n=1)
        remedy = f"Did you mean {near[0]}?" if near else "Use gaussian, or register what draws it."
        raise ArgumentError("noise", f"must be one of {', '.join(NOISES)}", repr(family), remedy)
    try:
        return NOISES[family](scale, form, lattice)
    except TypeError:
        if form in (AUTO, FLOAT) and lattice is None:
            return NOISES[family](scale)
        rule, remedy = f"{family} noise is drawn in float32 alone", "Leave out form and lattice."
        raise ArgumentError("noise_form", rule, repr(form), remedy) from None

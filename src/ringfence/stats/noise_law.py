"""NoiseLaw: what is known of a noise without drawing it, which is all that a proof needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError, did_you_mean
from ringfence.settings import as_float
from ringfence.stats.lattice import check_lattice, thresholds
from ringfence.stats.special import ndtr, ndtri
from ringfence.types import FloatArray

GAUSSIAN: Final = "gaussian"
UNIFORM: Final = "uniform"
LAPLACE: Final = "laplace"
FLOAT: Final = "float"
EXACT: Final = "exact"
AUTO: Final = "auto"
FORMS = (FLOAT, EXACT)
"""How the noise is drawn and added: in float32, or as whole steps of a lattice that the inputs lie on. A noise (not a
law) may leave it open, auto: exact where the inputs are known to lie on a lattice, else float."""

STEPS: Final = 255
"""Of the lattice where none is named: the step of 8-bit images."""


@final
@dataclass(frozen=True)
class NoiseFamily:
    """Independent coordinates of one symmetric distribution, known up to its scale.

    parameter: what its scale is called; cdf, quantile: of one coordinate at scale 1, elementwise on arrays. The scale
    of the families here is their standard deviation, in which the literature compares them.
    """

    name: str
    parameter: str
    cdf: Callable[[FloatArray], FloatArray]
    quantile: Callable[[FloatArray], FloatArray]


HALF_WIDTH: Final = math.sqrt(3)
"""Of uniform noise with standard deviation 1: it lies in [-sqrt 3, sqrt 3]."""
DECAY: Final = math.sqrt(2)
"""Of Laplace noise with standard deviation 1: its density is exp(-sqrt 2 |e|) / sqrt 2."""


def _uniform_cdf(x: FloatArray) -> FloatArray:
    return np.clip((x / HALF_WIDTH + 1) / 2, 0.0, 1.0)


def _uniform_quantile(p: FloatArray) -> FloatArray:
    return HALF_WIDTH * (2 * p - 1)


def _laplace_cdf(x: FloatArray) -> FloatArray:
    tail = np.exp(-DECAY * np.abs(x)) / 2
    return np.where(x < 0, tail, 1 - tail)


def _laplace_quantile(p: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.where(p <= 0.5, np.log(2 * p), -np.log(2 * (1 - p))) / DECAY


FAMILIES: dict[str, NoiseFamily] = {
    GAUSSIAN: NoiseFamily(GAUSSIAN, "sigma", ndtr, ndtri),
    UNIFORM: NoiseFamily(UNIFORM, "sigma", _uniform_cdf, _uniform_quantile),
    LAPLACE: NoiseFamily(LAPLACE, "sigma", _laplace_cdf, _laplace_quantile),
}
"""Families by name; another one is added here."""


@final
@dataclass(frozen=True)
class NoiseLaw:
    """The distribution of one coordinate of a noise, all coordinates being independent and alike.

    family: a name of FAMILIES, or one that no mechanism here knows; scale: its parameter, sigma for those of the house;
    form: how it is drawn; lattice: steps per unit of the lattice it lies on, None for float noise.
    slack: by how much a probability about inputs may differ from that under the law itself; 0 for float noise, whose
    rounding nobody bounds, and for exact noise None until ``over`` is told the number of coordinates.
    """

    family: str
    scale: float
    form: str = FLOAT
    lattice: int | None = None
    slack: float | None = None

    def __post_init__(self) -> None:
        scale = as_float(self.scale)
        if not 0 < scale < math.inf:
            raise ArgumentError(self.parameter, "must be positive and finite", self.scale, "Pass e.g. 0.5.")
        object.__setattr__(self, "scale", scale)
        if self.form not in FORMS:
            remedy = did_you_mean(str(self.form), FORMS, "Leave it out.")
            raise ArgumentError("noise_form", f"must be {' or '.join(FORMS)}", repr(self.form), remedy)
        if self.form == FLOAT:
            if self.lattice is not None:
                rule, remedy = "is for exact noise alone", 'Leave it out, or ask for form="exact".'
                raise ArgumentError("lattice", rule, self.lattice, remedy)
            object.__setattr__(self, "slack", 0.0)
        elif self.lattice is None:
            object.__setattr__(self, "lattice", STEPS)
        else:
            check_lattice(self.lattice)
        if not (self.slack is None or self.slack >= 0):  # it would move bounds towards each other
            raise ArgumentError("slack", "must be at least 0", self.slack, "Pass law.over(coordinates).")

    @property
    def parameter(self) -> str:
        """What the scale is called in this family."""
        return FAMILIES[self.family].parameter if self.family in FAMILIES else "scale"

    @property
    def unit(self) -> NoiseLaw:
        """The same law at scale 1."""
        return replace(self, scale=1.0)

    def over(self, coordinates: int) -> NoiseLaw:
        """The same law for inputs of so many coordinates, which is what a proof about exact noise needs to know."""
        if self.lattice is None:
            return self
        return replace(self, slack=coordinates * thresholds(self.family, self.scale, self.lattice).eta)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(e <= x) of one coordinate e; elementwise."""
        return np.asarray(self._known.cdf(np.asarray(x, np.float64) / self.scale))

    def quantile(self, p: ArrayLike) -> FloatArray:
        """The x with P(e <= x) = p; elementwise."""
        return np.asarray(self._known.quantile(np.asarray(p, np.float64)) * self.scale)

    def settings(self) -> dict[str, Any]:
        """Family, scale, form and lattice, for a run's config, where the scale of every family is called sigma."""
        return {"family": self.family, "sigma": self.scale, "form": self.form, "lattice": self.lattice}

    def __str__(self) -> str:
        exact = "" if self.lattice is None else f", exact in steps of 1/{self.lattice}"
        return f"{self.family} noise of {self.parameter} {self.scale:g}{exact}"

    @property
    def _known(self) -> NoiseFamily:
        if self.family not in FAMILIES:
            rule, remedy = f"must be one of {', '.join(FAMILIES)}", "Add its distribution to stats.FAMILIES."
            raise ArgumentError("noise", rule, self.family, remedy)
        return FAMILIES[self.family]


def as_law(noise: NoiseLaw | float) -> NoiseLaw:
    """The law itself; a plain number is the sigma of Gaussian noise."""
    return noise if isinstance(noise, NoiseLaw) else NoiseLaw(GAUSSIAN, noise)

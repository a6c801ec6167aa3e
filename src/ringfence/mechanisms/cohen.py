"""The radii of Cohen, Rosenfeld and Kolter (2019): the tight certificate and its one-sided form."""

from __future__ import annotations

from typing import final

from scipy.special import ndtri

from ringfence.mechanisms.base import Mechanism
from ringfence.types import FloatArray


@final
class OneSided(Mechanism):
    """sigma PhiInv(p_a) where p_a > 1/2, whatever p_b is: the radius as CERTIFY uses it."""

    name = "one_sided"

    def _radius(self, p_a: FloatArray, p_b: FloatArray) -> FloatArray:
        radius: FloatArray = ndtri(p_a)
        return radius


@final
class NeymanPearson(Mechanism):
    """sigma/2 (PhiInv(p_a) - PhiInv(p_b)): theorem 1; no sound certificate from the same bounds is larger."""

    name = "neyman_pearson"

    def _radius(self, p_a: FloatArray, p_b: FloatArray) -> FloatArray:
        radius: FloatArray = (ndtri(p_a) - ndtri(p_b)) / 2
        return radius


one_sided = OneSided()
neyman_pearson = NeymanPearson()

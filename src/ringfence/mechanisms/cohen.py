"""The radii of Cohen, Rosenfeld and Kolter (2019): the tight certificate and its one-sided form."""

from __future__ import annotations

from typing import final

from ringfence.mechanisms.base import Mechanism
from ringfence.stats.noise_law import GAUSSIAN, NoiseLaw
from ringfence.types import FloatArray


@final
class OneSided(Mechanism):
    """Q(p_a) where p_a > 1/2, whatever p_b is, Q the quantile function of the noise: the radius as CERTIFY uses it."""

    name = "one_sided"
    families = frozenset({GAUSSIAN})

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return law.quantile(p_a)


@final
class NeymanPearson(Mechanism):
    """(Q(p_a) - Q(p_b)) / 2, sigma/2 (PhiInv(p_a) - PhiInv(p_b)): theorem 1.

    No sound certificate from the same bounds is larger. It holds for any two [0,1] functions of the same noise.
    """

    name = "neyman_pearson"
    families = frozenset({GAUSSIAN})
    joins = True

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return (law.quantile(p_a) - law.quantile(p_b)) / 2


one_sided = OneSided()
neyman_pearson = NeymanPearson()

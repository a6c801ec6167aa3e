"""The tight certificate and its one-sided form: for Gaussian noise those of Cohen, Rosenfeld and Kolter (2019), in l2.

The same formulas hold in l1 for independent coordinates of one symmetric log-concave density, uniform and Laplace noise
among them (Yang et al. 2020). If one coordinate of the input moves by t, the likelihood ratio is monotone in that
coordinate, so that by Neyman and Pearson a probability p falls to no less than F(Q(p) - t); moved one after the other,
coordinates add their distances up. No half-space along an axis keeps more. The Gaussian, alike in all directions, needs
one step along the line to x': there the norm is l2.
"""

from __future__ import annotations

from typing import final

from ringfence.mechanisms.base import Mechanism, Norm
from ringfence.stats.noise_law import GAUSSIAN, LAPLACE, UNIFORM, NoiseLaw
from ringfence.types import FloatArray

AXIS_NOISE = frozenset({UNIFORM, LAPLACE})
"""Families with the l1 proof; the Gaussian's l2 radii are as large in l1, because l1 balls lie within l2 balls."""


class _Proved(Mechanism):
    """A formula that is proved for some families in one norm and for others in another, under a name for each."""

    @final
    def __init__(self, name: str, families: frozenset[str], norm: Norm) -> None:
        self.name, self.families, self.norm = name, families, norm


@final
class OneSided(_Proved):
    """Q(p_a) where p_a > 1/2, whatever p_b is, Q the quantile function of the noise: the radius as CERTIFY uses it."""

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return law.quantile(p_a)


@final
class NeymanPearson(_Proved):
    """(Q(p_a) - Q(p_b)) / 2; for Gaussian noise sigma/2 (PhiInv(p_a) - PhiInv(p_b)), theorem 1.

    No sound certificate from the same bounds is larger. It holds for any two [0,1] functions of the same noise.
    """

    joins = True

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return (law.quantile(p_a) - law.quantile(p_b)) / 2


one_sided = OneSided("one_sided", frozenset({GAUSSIAN}), "l2")
neyman_pearson = NeymanPearson("neyman_pearson", frozenset({GAUSSIAN}), "l2")
one_sided_l1 = OneSided("one_sided_l1", AXIS_NOISE, "l1")
neyman_pearson_l1 = NeymanPearson("neyman_pearson_l1", AXIS_NOISE, "l1")

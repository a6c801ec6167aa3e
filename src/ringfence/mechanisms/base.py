"""Mechanism: bounds on class probabilities under noise of a known law -> certified radius in one norm.

The tight one, whose radius no other exceeds, stands at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike

from ringfence.errors import ArgumentError
from ringfence.stats.noise_law import GAUSSIAN, LAPLACE, UNIFORM, NoiseLaw, as_law
from ringfence.stats.special import ndtr
from ringfence.types import FloatArray

Norm = Literal["l1", "l2", "linf"]

_ROUND_DOWN = 1 - 1e-9
"""Radii are rounded down by this factor, far more than any formula here errs."""
_ROUNDING = 4e-15
"""Taken off at scale 1: two probabilities that differ in their last digit certify nothing."""
_ROUNDING_BETWEEN = 1e-14
"""The same for bounds on functions smoothed apart, taken off after the scale, where that is small: folders hold radii
rounded so, to the last bit, and verification asks for that bit."""
_CERTAIN, _CERTAIN_RIVAL = 1 - 1e-7, 0.99
"""Where p_a or p_b is beyond, its last bit is worth more than what is taken off radii."""
_LEAST = 1e-18
"""Of p_a, to certify anything: no count proves less of a class that leads, and the rounding of quantiles of smaller
probabilities is more than what is taken off."""
_CHUNK = 8192
"""Points computed at once: the temporaries of the search loops stay in the cache."""


class Mechanism(ABC):
    """A proof that turns bounds on class probabilities into a radius; subclasses are final and write ``_radius``.

    families: names of the noise families that the proof is about; it is refused with any other. norm: of its radii.
    joins: whether p_a and p_b may bound different functions of the same noise, whose sum may exceed 1.
    """

    name: str
    families: frozenset[str] = frozenset()
    norm: Norm = "l2"
    joins: bool = False

    @property
    def spelled(self) -> str:
        """The name as options and messages have it; records and configs keep it with underscores."""
        return self.name.replace("_", "-")

    @final
    def __call__(self, p_a: ArrayLike, p_b: ArrayLike, noise: NoiseLaw | float) -> FloatArray:
        """Radius within which the prediction cannot change, 0 where nothing is certified; p_a and p_b broadcast.

        p_a: lower bound on the chosen class; p_b: upper bound on every other class, at most 1 - p_a;
        noise: its law, or the sigma of Gaussian noise. The radius is rounded down; it is infinite where the law has
        no bound and p_a = 1 or p_b = 0 says that no other class can ever appear (finitely many draws never say so).
        """
        law = self.proved_for(noise)
        top, other = np.broadcast_arrays(np.asarray(p_a, np.float64), np.asarray(p_b, np.float64))
        _check(top, other, most=1.0 - top + 1e-9)
        unit = self._at_unit_scale(*apart(top, np.minimum(other, 1.0 - top), law), law.unit)
        # fmax also turns a formula's undefined value into "nothing certified".
        return np.asarray(np.fmax(unit - _ROUNDING, 0.0) * law.scale * _ROUND_DOWN)

    @final
    def between(self, p_a: ArrayLike, p_b: ArrayLike, noise: NoiseLaw | float) -> FloatArray:
        """Radius within which one function stays above all others, from p_a below the one and p_b above the others.

        They are functions of the same noisy input that need not sum to 1: members of an ensemble smoothed apart.
        """
        law = self.proved_for(noise)
        if not self.joins:
            rule = f"{self.spelled} has no proof for bounds on members smoothed apart"
            raise ArgumentError("mechanism", rule, self.spelled, "Use neyman-pearson.")
        top, other = np.broadcast_arrays(np.asarray(p_a, np.float64), np.asarray(p_b, np.float64))
        _check(top, other, most=np.ones_like(top))
        unit = self._at_unit_scale(*apart(top, other, law), law.unit)
        off = max(_ROUNDING_BETWEEN, _ROUNDING * law.scale)
        return np.asarray(np.fmax(law.scale * unit * _ROUND_DOWN - off, 0.0))

    @final
    def proved_for(self, noise: NoiseLaw | float) -> NoiseLaw:
        """The law of the noise, refused where this proof is about another."""
        law = as_law(noise)
        if law.family not in self.families:
            about = ", ".join(sorted(self.families))
            rule = f"{self.spelled} is a proof about {about or 'no noise: its class names no families'}"
            rule += " noise" if about else ""
            raise ArgumentError("mechanism", rule, f"{law}", "Choose a mechanism that is proved for this noise.")
        return law

    @abstractmethod
    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        """Radius for 1-d arrays with p_a > p_b under the law, which has scale 1: radii are proportional to it."""

    @final
    def probability_for(self, radius: ArrayLike, noise: NoiseLaw | float) -> FloatArray:
        """Smallest p_a at which this mechanism certifies the radius with p_b = 1 - p_a; elementwise.

        Rounded up: ``self(p, 1 - p, noise) >= radius`` holds for the result p. It is 1/2 for radius 0, more by what
        exact noise may differ from its law, and infinite, a probability nobody reaches, where no p_a is enough.
        """
        goal = np.asarray(radius, np.float64)
        if not (goal >= 0).all():
            raise ArgumentError("radius", "must be at least 0", radius, "Pass a distance in input units.")
        enough = np.where(self(1.0, 0.0, noise) >= goal, 1.0, np.inf)
        # Bisection in the normal quantile, which resolves probabilities close to 1.
        low, high = np.zeros(goal.shape), np.full(goal.shape, 9.0)
        for _ in range(60):
            middle = (low + high) / 2
            p_a = 1.0 - ndtr(-middle)
            reached = self(p_a, 1.0 - p_a, noise) >= goal
            enough = np.where(reached, np.minimum(p_a, enough), enough)
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        return np.where(goal == 0, 0.5 + slack_of(self.proved_for(noise)), enough)

    def _at_unit_scale(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        """``_radius`` where p_a > p_b, 0 elsewhere; in chunks, of any shape."""
        top, other = p_a.ravel(), p_b.ravel()
        unit = np.zeros(top.shape)
        with np.errstate(all="ignore"):
            for first in range(0, unit.size, _CHUNK):
                part = slice(first, first + _CHUNK)
                hopeful = (top[part] > other[part]) & (top[part] >= _LEAST)
                unit[part][hopeful] = self._radius(top[part][hopeful], other[part][hopeful], law)
        return unit.reshape(p_a.shape)


def slack_of(law: NoiseLaw) -> float:
    """What probabilities are moved by before a proof uses them; exact noise has some, and must know how much."""
    if law.slack is None:
        rule = "must know the number of coordinates of an input: as drawn it differs from its law by some for each"
        raise ArgumentError("noise", rule, f"{law}", "Pass law.over(coordinates).")
    return law.slack


def apart(p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> tuple[FloatArray, FloatArray]:
    """Bounds under the law itself from bounds under the noise as drawn, with room for the way back at x'.

    The one place where exact noise is corrected for being drawn from 64-bit words: every radius, and every
    probability for a radius, passes through here.
    """
    slack = slack_of(law)
    if slack == 0:
        return p_a, p_b
    low, high = np.maximum(p_a - slack, 0.0), np.minimum(p_b + slack, 1.0)
    near = (low > _CERTAIN) | (high > _CERTAIN_RIVAL)
    return np.where(near, np.nextafter(low, 0.0), low), np.where(near, np.minimum(np.nextafter(high, 2.0), 1.0), high)


def check_together(mechanisms: Sequence[Mechanism], noise: NoiseLaw | float) -> None:
    """Refuse mechanisms that are not proved for this noise, or whose radii beside each other are of different norms or
    called alike: one would be taken for the other's."""
    by_name = dict[str, Mechanism]()
    for one in mechanisms:
        one.proved_for(noise)
        if type(by_name.setdefault(one.name, one)) is not type(one):
            rule = "needs a name that no other of the run has"
            raise ArgumentError("mechanism", rule, f"two called {one.spelled}", "Call yours otherwise.")
    if len({one.norm for one in mechanisms}) > 1:
        norms = ", ".join(f"{one.spelled} in {one.norm}" for one in mechanisms)
        raise ArgumentError("mechanism", "all of a run must be about one norm", norms, "Run them apart.")


def _check(p_a: FloatArray, p_b: FloatArray, most: FloatArray) -> None:
    """Refuse what is no pair of bounds, p_b being at most ``most``; not-a-number fails every rule."""
    rules = (
        ("p_a", (p_a >= 0) & (p_a <= 1), "must lie in [0, 1]", "Pass a lower bound on a probability."),
        ("p_b", (p_b >= 0) & (p_b <= 1), "must lie in [0, 1]", "Pass an upper bound on a probability."),
        ("p_b", p_b <= most, "must be at most 1 - p_a", "Pass min(p_b, 1 - p_a): no other class has more."),
    )
    for name, holds, rule, remedy in rules:
        if not holds.all():
            first = np.flatnonzero(~holds.ravel())[0]
            raise ArgumentError(name, rule, f"p_a={p_a.flat[first]:.6g}, p_b={p_b.flat[first]:.6g}", remedy)


AXIS_NOISE = frozenset({UNIFORM, LAPLACE})
"""Families with the l1 proof; the Gaussian's l2 radii are as large in l1, because l1 balls lie within l2 balls."""


class _Proved(Mechanism):
    """The tight certificate and its one-sided form, proved for some families in one norm and for others in another.

    For Gaussian noise they are those of Cohen, Rosenfeld and Kolter (2019), in l2. The same formulas hold in l1 for
    independent coordinates of one symmetric log-concave density, uniform and Laplace noise among them (Yang et al.
    2020). If one coordinate of the input moves by t, the likelihood ratio is monotone in that coordinate, so that by
    Neyman and Pearson a probability p falls to no less than F(Q(p) - t); moved one after the other, coordinates add
    their distances up. No half-space along an axis keeps more. The Gaussian, alike in all directions, needs one step
    along the line to x': there the norm is l2. Each has a name of its own for either norm.
    """

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

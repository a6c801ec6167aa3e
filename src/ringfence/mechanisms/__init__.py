"""Mechanisms: proofs that turn bounds on class probabilities into a certified radius, on arrays; by name, and the
largest of several."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import final

import numpy as np

from ringfence.errors import LOAD_PLUGIN, ArgumentError, did_you_mean
from ringfence.mechanisms.base import (
    Mechanism,
    Norm,
    check_together,
    neyman_pearson,
    neyman_pearson_l1,
    one_sided,
    one_sided_l1,
)
from ringfence.mechanisms.divergence import analytic_dp, pixeldp, renyi
from ringfence.stats.noise_law import GAUSSIAN, NoiseLaw
from ringfence.types import FloatArray

__all__ = [
    "MECHANISMS",
    "BestOf",
    "Mechanism",
    "Norm",
    "analytic_dp",
    "best_of",
    "check_together",
    "default_mechanism",
    "mechanism",
    "mechanisms_named",
    "neyman_pearson",
    "neyman_pearson_l1",
    "one_sided",
    "one_sided_for",
    "one_sided_l1",
    "pixeldp",
    "renyi",
]

MECHANISMS: dict[str, Mechanism] = {
    one.name: one for one in (neyman_pearson, one_sided, renyi, pixeldp, analytic_dp, neyman_pearson_l1, one_sided_l1)
}
"""By name; of those for a family of noise the first is the one that decides where none is named."""


@final
class BestOf(Mechanism):
    """The largest radius of several from the SAME bounds, which costs no alpha (Cullen et al. 2024)."""

    def __init__(self, *members: Mechanism) -> None:
        if not members:
            raise ArgumentError("best_of", "needs at least one mechanism", "none", "Write best_of(renyi, one_sided).")
        if len({one.norm for one in members}) > 1:
            norms = ", ".join(f"{one.spelled} in {one.norm}" for one in members)
            raise ArgumentError("best_of", "members must be about one norm", norms, "Compare radii of one norm.")
        self.members = members
        self.name = "best_of:" + "+".join(member.name for member in members)
        self.families = frozenset.intersection(*(member.families for member in members))
        self.norm = members[0].norm

    def _radius(self, p_a: FloatArray, p_b: FloatArray, law: NoiseLaw) -> FloatArray:
        return reduce(np.fmax, (member._radius(p_a, p_b, law) for member in self.members))


def best_of(*members: Mechanism) -> BestOf:
    """The largest radius among members, all computed from the same bounds."""
    return BestOf(*members)


def default_mechanism(family: str) -> Mechanism:
    """What decides under noise of this family where nobody says; for a family without a proof one that refuses it."""
    return next((one for one in MECHANISMS.values() if family in one.families), neyman_pearson)


def one_sided_for(family: str) -> Mechanism:
    """The one-sided form for a family, as CERTIFY uses it; the default where there is none."""
    each = (one for one in (one_sided, one_sided_l1) if family in one.families)
    return next(each, default_mechanism(family))


def mechanisms_named(names: str | Sequence[str] | None, family: str = GAUSSIAN) -> tuple[Mechanism, ...]:
    """The one that decides, then those recorded beside it; None: the default for the family of the noise, ``all``: that
    one with every other like it."""
    if names is None:
        return (default_mechanism(family),)
    each = [names] if isinstance(names, str) else names
    return tuple(one for name in each for one in (_every(family) if name == "all" else [mechanism(name)]))


def _every(family: str) -> list[Mechanism]:
    """Those about other noise or another norm have no radius to stand beside the default's."""
    first = default_mechanism(family)
    alike = [one for one in MECHANISMS.values() if one.norm == first.norm and family in one.families]
    return [first, *(one for one in alike if one is not first)]


def mechanism(name: str, argument: str = "mechanism") -> Mechanism:
    """The mechanism called name, hyphens or underscores alike; ``renyi+one_sided`` is the best of both. argument: what
    an error calls it."""
    plain = name.strip().lower().replace("-", "_")
    if plain.startswith("best_of:") or "+" in plain:
        return best_of(*(mechanism(member, argument) for member in plain.removeprefix("best_of:").split("+")))
    if plain in MECHANISMS:
        return MECHANISMS[plain]
    known = [*(one.spelled for one in MECHANISMS.values()), "best-of:a+b"]
    remedy = did_you_mean(plain.replace("_", "-"), known, f"Name one of them, or {LOAD_PLUGIN}", cutoff=0.4)
    raise ArgumentError(argument, f"must be one of {', '.join(known)}", repr(name), remedy)

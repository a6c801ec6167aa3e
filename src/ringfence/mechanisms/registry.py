"""Mechanisms by name."""

from __future__ import annotations

from difflib import get_close_matches

from ringfence.errors import ArgumentError
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.cohen import neyman_pearson, one_sided
from ringfence.mechanisms.divergence import renyi
from ringfence.mechanisms.ensemble import best_of
from ringfence.mechanisms.privacy import analytic_dp, pixeldp

MECHANISMS: dict[str, Mechanism] = {m.name: m for m in (neyman_pearson, one_sided, renyi, pixeldp, analytic_dp)}


def mechanism(name: str) -> Mechanism:
    """The mechanism called name, hyphens or underscores alike; ``best_of:renyi+one_sided`` composes."""
    plain = name.strip().lower().replace("-", "_")
    if plain.startswith("best_of:"):
        return best_of(*(mechanism(member) for member in plain.removeprefix("best_of:").split("+")))
    if plain in MECHANISMS:
        return MECHANISMS[plain]
    known = [*MECHANISMS, "best_of:a+b"]
    near = get_close_matches(plain, known, n=1, cutoff=0.4)
    remedy = f"Did you mean {near[0]}?" if near else f"Choose from {', '.join(known)}."
    raise ArgumentError("mechanism", f"must be one of {', '.join(known)}", repr(name), remedy)

"""Mechanisms: proofs that turn bounds on class probabilities into a certified radius, on arrays."""

from ringfence.mechanisms.base import Mechanism, Norm, check_together
from ringfence.mechanisms.cohen import neyman_pearson, neyman_pearson_l1, one_sided, one_sided_l1
from ringfence.mechanisms.divergence import analytic_dp, pixeldp, renyi
from ringfence.mechanisms.registry import (
    MECHANISMS,
    best_of,
    default_mechanism,
    mechanism,
    mechanisms_named,
    one_sided_for,
)

__all__ = [
    "MECHANISMS",
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

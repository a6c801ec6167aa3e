"""Mechanisms: proofs that turn bounds on class probabilities into a certified radius, on arrays."""

from ringfence.mechanisms.base import Mechanism, Norm, check_together
from ringfence.mechanisms.cohen import neyman_pearson, one_sided
from ringfence.mechanisms.divergence import renyi
from ringfence.mechanisms.privacy import analytic_dp, pixeldp
from ringfence.mechanisms.registry import MECHANISMS, best_of, mechanism, mechanisms_named

__all__ = [
    "MECHANISMS",
    "Mechanism",
    "Norm",
    "analytic_dp",
    "best_of",
    "check_together",
    "mechanism",
    "mechanisms_named",
    "neyman_pearson",
    "one_sided",
    "pixeldp",
    "renyi",
]

"""Mechanisms: bounds on class probabilities -> certified l2 radius, on arrays."""

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.cohen import neyman_pearson, one_sided
from ringfence.mechanisms.divergence import renyi
from ringfence.mechanisms.ensemble import best_of
from ringfence.mechanisms.privacy import analytic_dp, pixeldp
from ringfence.mechanisms.registry import MECHANISMS, mechanism

__all__ = [
    "MECHANISMS",
    "Mechanism",
    "analytic_dp",
    "best_of",
    "mechanism",
    "neyman_pearson",
    "one_sided",
    "pixeldp",
    "renyi",
]

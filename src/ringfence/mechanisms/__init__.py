"""Mechanisms: bounds on class probabilities -> certified l2 radius, on arrays."""

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.best_of import best_of
from ringfence.mechanisms.cohen import neyman_pearson, one_sided
from ringfence.mechanisms.privacy import analytic_dp, pixeldp
from ringfence.mechanisms.registry import MECHANISMS, mechanism
from ringfence.mechanisms.renyi import renyi

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

"""Attacks: points inside a ball at which a smoothed classifier errs, and what they say about a certified run."""

from ringfence.attacks.through_noise import (
    ATTACKS,
    ORDERS,
    Ddn,
    Pgd,
    PgdL1,
    SmoothedScores,
    gradient_of_loss,
    log_mean_softmax,
    norms,
    smoothed_loss,
    unit,
)

__all__ = [
    "ATTACKS",
    "ORDERS",
    "Ddn",
    "Pgd",
    "PgdL1",
    "SmoothedScores",
    "gradient_of_loss",
    "log_mean_softmax",
    "norms",
    "smoothed_loss",
    "unit",
]

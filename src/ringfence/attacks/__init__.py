"""Attacks: points inside a ball at which a smoothed classifier errs, and what they say about a certified run."""

from ringfence.attacks.through_noise import (
    ATTACKS,
    ORDERS,
    Attack,
    Ddn,
    Pgd,
    PgdL1,
    SmoothedScores,
    check_attack,
    gradient_of_loss,
    log_mean_softmax,
    norms,
    smoothed_log_probabilities,
    smoothed_loss,
    unit,
)

__all__ = [
    "ATTACKS",
    "ORDERS",
    "Attack",
    "Ddn",
    "Pgd",
    "PgdL1",
    "SmoothedScores",
    "check_attack",
    "gradient_of_loss",
    "log_mean_softmax",
    "norms",
    "smoothed_log_probabilities",
    "smoothed_loss",
    "unit",
]

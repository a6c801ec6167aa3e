"""The simulation of ``ringfence.laws``, at the sigma and with the false alarm of this suite."""

from __future__ import annotations

from scipy.stats import binom

from ringfence.laws import false_claims, simulate, true_radius

__all__ = ["FALSE_ALARM", "SIGMA", "false_claims", "most_failures", "simulate", "true_radius"]

SIGMA = 0.5
FALSE_ALARM = 1e-6 / 400
"""Each law's own share of one false alarm in a million over the whole suite."""


def most_failures(runs: int, alpha: float) -> int:
    """More failures than this would be seen with probability FALSE_ALARM if the rate were alpha."""
    return int(binom.isf(FALSE_ALARM, runs, alpha))

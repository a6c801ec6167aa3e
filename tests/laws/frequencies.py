"""Counts against the frequencies that a law expects: Pearson's chi-squared test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

LEAST = 10.0
"""Draws that a cell is expected to have before its share of the statistic is nearly chi-squared."""


def assert_frequencies(counts: NDArray[np.generic], expected: NDArray[np.float64]) -> None:
    """Fails for counts of the law once in 10^9 times; neighbours are counted together where they are rare alone."""
    ends, held = [], 0.0
    for place, share in enumerate(expected):
        held += share
        if held >= LEAST:
            ends.append(place + 1)
            held = 0.0
    starts = [0, *ends[:-1]]  # the last cell takes what is left behind it
    seen, wanted = (np.add.reduceat(np.asarray(one, np.float64), starts) for one in (counts, expected))
    statistic = float(((seen - wanted) ** 2 / wanted).sum())
    assert statistic < chi2.isf(1e-9, len(starts) - 1), (statistic, len(starts))

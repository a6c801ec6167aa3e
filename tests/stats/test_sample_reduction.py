"""How many draws the design saves on the probabilities behind Cohen's published CIFAR-10 logs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from ringfence.stats import clopper_pearson_lower, group_sequential_design
from ringfence.types import FloatArray

PUBLISHED = [  # sigma, radius, beta, reduction without the n0 = 100 selection draws, with them
    (0.25, 0.25, 1e-3, 60.4, 57.0),
    (0.25, 0.75, 1e-3, 11.8, 11.7),
    (0.25, 0.75, 1e-4, 11.4, 11.3),
    (0.5, 1.0, 1e-3, 36.6, 35.3),
    (0.5, 1.0, 1e-4, 33.5, 32.4),
    (0.25, 0.25, 1e-4, 56.5, 53.5),
    (0.25, 0.5, 1e-3, 46.1, 44.1),
    (0.25, 0.5, 1e-4, 42.1, 40.4),
    (0.5, 0.5, 1e-3, 35.9, 34.7),
    (0.5, 0.5, 1e-4, 32.4, 31.4),
    (0.5, 1.5, 1e-3, 21.3, 20.8),
    (0.5, 1.5, 1e-4, 20.0, 19.6),
]


@cache
def probabilities(log: Path, sigma: float) -> FloatArray:
    """p_A of each input: the success rate whose bound at n = 100,000 gives the logged radius."""
    predicted, radius = np.loadtxt(log, skiprows=1, usecols=(2, 3)).T
    n = 100_000
    bounds = clopper_pearson_lower(np.arange(n + 1), n, 1e-3)
    rates = np.minimum(np.searchsorted(bounds, ndtr(radius / sigma)) / n, 1 - 5e-6)
    abstained = predicted == -1
    rates[abstained] = 0.3 + 0.2 * (np.arange(abstained.sum()) + 0.5) / abstained.sum()
    return rates


@pytest.mark.parametrize(
    ("sigma", "radius", "beta", "without", "with_selection"),
    PUBLISHED,
)
def test_the_published_reductions(
    shared: Path, sigma: float, radius: float, beta: float, without: float, with_selection: float
) -> None:
    folder = shared / "logs" / "cohen" / "data" / "certify" / "cifar10" / "resnet110"
    rates, repeats = np.unique(
        probabilities(folder / f"noise_{sigma:.2f}" / "test" / f"sigma_{sigma:.2f}", sigma), return_counts=True
    )
    design = group_sequential_design(float(ndtr(radius / sigma)), 1e-3, beta=beta)
    draws = np.average([design.expected_draws(p) for p in rates], weights=repeats)
    assert 100_000 / draws == pytest.approx(without, rel=0.02)
    assert 100_000 / (draws + 100) == pytest.approx(with_selection, rel=0.02)

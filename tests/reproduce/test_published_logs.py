"""The probabilities rebuilt from a published log give that log's radii back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bench_sample_complexity import rebuilt_p_a
from scipy.special import ndtri

from ringfence.stats import clopper_pearson_lower
from ringfence.store.logs import read_cohen

LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.50_sigma_0.50"


def test_the_rebuilt_count_is_the_first_whose_bound_reaches_the_logged_radius() -> None:
    log = read_cohen(LOG)
    rates = rebuilt_p_a(log, 0.5)
    inside = (log.predict != -1) & (rates < 1 - 1e-5)
    assert inside.sum() > 300
    hits, radius = np.round(rates[inside] * 100_000).astype(np.int64), log.radius[inside]
    reached = 0.5 * ndtri(clopper_pearson_lower(hits, 100_000, 1e-3))
    one_less = 0.5 * ndtri(clopper_pearson_lower(hits - 1, 100_000, 1e-3))
    assert (reached >= radius * (1 - 1e-9)).all()
    assert (one_less < radius).all()


def test_abstentions_lie_between_three_and_five_tenths_and_nothing_reaches_one() -> None:
    log = read_cohen(LOG)
    rates = rebuilt_p_a(log, 0.5)
    abstained = log.predict == -1
    assert abstained.any()
    assert ((rates[abstained] > 0.3) & (rates[abstained] < 0.5)).all()
    assert (rates[~abstained] > 0.5).all()
    assert rates.max() <= 1 - 5e-6

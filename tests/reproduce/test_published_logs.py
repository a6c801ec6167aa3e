"""The probabilities rebuilt from a published log give that log's radii back, and what pages say of logs follows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import public_logs
import pytest
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


def test_as_many_draws_give_the_log_back_and_fewer_what_simulated_ones_give() -> None:
    log, radii = read_cohen(LOG), [0.0, 0.5, 1.0, 1.5]
    average, shares = public_logs.as_logged(log, radii)
    again, _ = public_logs.with_draws(log, 0.5, 100_000, radii)
    assert again == pytest.approx(average, abs=0.002)
    fewer, expected = public_logs.with_draws(log, 0.5, 1000, radii)
    drawn = np.random.default_rng(0).binomial(1000, rebuilt_p_a(log, 0.5), (400, len(log.radius)))
    radius = np.where(log.correct, public_logs.radius_by_count(1000, 0.5)[drawn], -1.0)
    assert fewer == pytest.approx(np.maximum(radius, 0.0).mean(), abs=0.002)
    assert expected == pytest.approx([100 * (radius >= one).mean() for one in radii], abs=0.2)
    assert fewer < average
    assert expected[0] <= shares[0]


def test_several_logs_are_told_by_mean_and_spread_and_images_may_be_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    public_logs.main([str(LOG), str(LOG), "--sigma", "0.5", "--skip", "40", "--radii", "0,0.5", "--draws", "100"])
    said = json.loads(capsys.readouterr().out)
    every = public_logs.every(read_cohen(LOG), 40)
    assert said["images"] == len(every) == 250
    assert said["acr_spread"] == 0
    assert said["acr"] == pytest.approx(public_logs.as_logged(every, [0.0])[0], abs=5e-4)
    assert list(said["certified_accuracy"]) == ["0", "0.5"]
    assert said["reckoned"]["n"] == 100

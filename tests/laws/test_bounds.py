"""Laws of all bounds and tests: each fails at most at its level, and moves the right way.

Tallies are drawn directly from known probabilities: 200,000 runs each, fixed seeds. A count of failures raises the
alarm where a bound failing exactly at alpha would reach it with probability below 1e-9, so that even a thousand such
checks raise a false alarm with probability below 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from ringfence.stats import (
    ClopperPearson,
    SpendingClopperPearson,
    betting_lower,
    betting_upper,
    empirical_bernstein_lower,
    empirical_bernstein_upper,
    evalue_certifies,
    hoeffding_lower,
    hoeffding_upper,
    log_evalue,
    rank_test,
    rank_test_one_sided,
)
from ringfence.types import FloatArray, IntArray

RUNS = 200_000
SCORES = np.array([0.0, 0.2, 0.7, 1.0])
Bound = Callable[[IntArray, float], FloatArray]
"""Histogram over SCORES (rows, 4) and alpha -> bound on the mean (rows,)."""


def holds_at_level(failures: int, alpha: float) -> bool:
    return failures <= int(binom.isf(1e-9, RUNS, alpha))


def moments(counts: IntArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Mean, unbiased variance and number of draws of each histogram."""
    n = counts.sum(axis=1)
    mean = counts @ SCORES / n
    return mean, np.maximum(counts @ SCORES**2 - n * mean**2, 0.0) / (n - 1), n


def clipped_mean(counts: IntArray) -> FloatArray:
    return np.clip(moments(counts)[0], 0.0, 1.0)


LOWER: dict[str, Bound] = {
    "hoeffding": lambda counts, a: hoeffding_lower(clipped_mean(counts), counts.sum(axis=1), a),
    "bernstein": lambda counts, a: empirical_bernstein_lower(clipped_mean(counts), *moments(counts)[1:], a),
    "betting": lambda counts, a: betting_lower(SCORES, counts, a),
}
UPPER: dict[str, Bound] = {
    "hoeffding": lambda counts, a: hoeffding_upper(clipped_mean(counts), counts.sum(axis=1), a),
    "bernstein": lambda counts, a: empirical_bernstein_upper(clipped_mean(counts), *moments(counts)[1:], a),
    "betting": lambda counts, a: betting_upper(SCORES, counts, a),
}
WORLDS = [(0.0, 0.0, 0.1, 0.9), (0.97, 0.01, 0.01, 0.01), (0.5, 0.0, 0.0, 0.5), (0.25, 0.25, 0.25, 0.25)]


@pytest.mark.parametrize("alpha", [0.1, 0.01])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", LOWER)
def test_bounds_on_means_cover(kind: str, world: tuple[float, ...], alpha: float) -> None:
    truth = float(np.dot(world, SCORES))
    tallies = np.random.default_rng(1).multinomial(40, world, RUNS)
    counts, repeats = np.unique(tallies, axis=0, return_counts=True)
    assert holds_at_level(int(repeats[LOWER[kind](counts, alpha) > truth].sum()), alpha)
    assert holds_at_level(int(repeats[UPPER[kind](counts, alpha) < truth].sum()), alpha)


@pytest.mark.parametrize("kind", LOWER)
def test_bounds_on_means_close_in(kind: str) -> None:
    """A bound that always answers 0 would cover; ours must come near the truth."""
    counts = np.array([[100_000, 100_000, 100_000, 700_000]])
    truth = float(np.dot(counts[0], SCORES)) / counts.sum()
    assert truth - 0.003 < LOWER[kind](counts, 1e-3)[0] < truth < UPPER[kind](counts, 1e-3)[0] < truth + 0.003


@pytest.mark.parametrize("kind", LOWER)
@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 60), min_size=4, max_size=4).filter(lambda c: sum(c) > 1 and sum(c[:3]) > 0))
def test_bounds_on_means_are_monotone(kind: str, counts: list[int]) -> None:
    """A larger score in place of a smaller one, or a larger alpha, never lowers the lower bound."""
    row = np.array([counts])
    mean = float(clipped_mean(row)[0])
    low, high = float(LOWER[kind](row, 0.01)[0]), float(UPPER[kind](row, 0.01)[0])
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
    assert LOWER[kind](row, 0.05)[0] >= low - 1e-9
    assert UPPER[kind](row, 0.05)[0] <= high + 1e-9
    if kind == "bernstein":
        return  # its margin grows with the spread of the sample
    better = row.copy()
    place = int(np.flatnonzero(row[0, :3])[0])
    better[0, place] -= 1
    better[0, 3] += 1
    assert LOWER[kind](better, 0.01)[0] >= low - 1e-9
    assert UPPER[kind](better, 0.01)[0] >= high - 1e-9


@pytest.mark.parametrize("alpha", [0.1, 0.001])
@pytest.mark.parametrize(("p", "n"), [(0.5, 50), (0.9, 100), (0.999, 1000), (0.03, 200), (0.997, 100_000)])
def test_clopper_pearson_covers(p: float, n: int, alpha: float) -> None:
    bound = ClopperPearson(alpha)
    counts, repeats = np.unique(np.random.default_rng(2).binomial(n, p, RUNS), return_counts=True)
    assert holds_at_level(int(repeats[bound.lower_at_fixed_n(counts, n) > p].sum()), alpha)
    assert holds_at_level(int(repeats[bound.upper_at_fixed_n(counts, n) < p].sum()), alpha)


@pytest.mark.parametrize("alpha", [0.1, 0.01])
@pytest.mark.parametrize("p", [0.5, 0.95, 0.999])
def test_the_anytime_bound_covers_at_all_looks_together(p: float, alpha: float) -> None:
    bound = SpendingClopperPearson(alpha)
    rng = np.random.default_rng(3)
    successes, drawn, failed = np.zeros(RUNS, np.int64), 0, np.zeros(RUNS, bool)
    for look, wait in enumerate((50, 25, 40, 60, 90, 130, 200, 300, 440, 670), start=1):
        successes += rng.binomial(wait, p, RUNS)
        drawn += wait
        table = bound.lower_at_look(np.arange(drawn + 1), drawn, look)
        failed |= table[successes] > p
    assert holds_at_level(int(failed.sum()), alpha)


@settings(deadline=None)
@given(n=st.integers(1, 10**6), alpha=st.floats(1e-12, 0.4), part=st.floats(0, 1))
def test_clopper_pearson_is_monotone(n: int, alpha: float, part: float) -> None:
    k = int(part * (n - 1))
    bound = ClopperPearson(alpha)
    low, next_low = bound.lower_at_fixed_n([k, k + 1], n)
    high, next_high = bound.upper_at_fixed_n([k, k + 1], n)
    assert 0 <= low <= k / n <= high <= 1
    assert low <= next_low
    assert high <= next_high
    assert ClopperPearson(min(2 * alpha, 0.9)).lower_at_fixed_n(k, n) >= low
    assert SpendingClopperPearson(alpha).lower_at_look(k, n, 1) <= low


@pytest.mark.parametrize("alpha", [0.1, 0.01])
@pytest.mark.parametrize("world", [(0.5, 0.5), (0.4, 0.4, 0.2), (0.34, 0.33, 0.33), (0.1,) * 10])
def test_the_rank_test_names_a_wrong_top_class_at_most_at_its_level(world: tuple[float, ...], alpha: float) -> None:
    """Naming a class with confidence is wrong where another is at least as likely; in a tie every name is."""
    tallies = np.random.default_rng(4).multinomial(100, world, RUNS)
    ordered = np.sort(tallies, axis=1)
    confident = rank_test(ordered[:, -1], ordered[:, -2]) <= alpha
    likeliest = np.array(world) > max(world[1:])
    assert holds_at_level(int((confident & ~likeliest[tallies.argmax(axis=1)]).sum()), alpha)


@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_the_one_sided_rank_test_serves_a_pair_fixed_beforehand(alpha: float) -> None:
    tallies = np.random.default_rng(5).multinomial(100, (0.4, 0.4, 0.2), RUNS)
    assert holds_at_level(int((rank_test_one_sided(tallies[:, 1], tallies[:, 0]) <= alpha).sum()), alpha)


@pytest.mark.parametrize("p0", [0.7, 0.98])
def test_the_e_value_certifies_wrongly_at_most_at_its_level_however_often_one_looks(p0: float) -> None:
    alpha, rng = 0.05, np.random.default_rng(6)
    successes, ever = np.zeros(RUNS, np.int64), np.zeros(RUNS, bool)
    for drawn in range(10, 801, 10):
        successes += rng.binomial(10, p0, RUNS)
        ever |= evalue_certifies(np.arange(drawn + 1), drawn, p0, alpha)[successes]
    assert holds_at_level(int(ever.sum()), alpha)
    assert ever.sum() > alpha * RUNS / 10


@settings(deadline=None)
@given(draws=st.integers(1, 10**5), part=st.floats(0, 1), p0=st.floats(0.05, 0.999))
def test_the_e_value_grows_with_successes(draws: int, part: float, p0: float) -> None:
    successes = int(part * (draws - 1))
    less, more = log_evalue([successes, successes + 1], draws, p0)
    assert more >= less - 1e-6

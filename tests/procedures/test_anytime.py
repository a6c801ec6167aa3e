"""Anytime certification, stepped by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Anytime, Given
from ringfence.types import Tally

GIVEN = Given(2, 0.5, neyman_pearson)


def votes(hits: int, draws: int) -> Tally:
    return Tally({"votes": np.array([[hits, draws - hits, 0]])}, np.array([draws]))


def walk(test: Anytime, share: float):  # type: ignore[no-untyped-def]
    """Look after look with this share of hits, until the procedure stops; (cumulative draws, lower bound) pairs."""
    state = test.update(test.start(1, GIVEN), votes(test.n0, test.n0), GIVEN)
    path, drawn, hits = [], 0, 0
    while (wanted := int(test.request(state)[0])) > 0:
        drawn += wanted
        now = round(share * drawn)
        state = test.update(state, votes(now - hits, wanted), GIVEN)
        hits = now
        path.append((drawn, float(test.conclude(state, GIVEN).p_a[0])))
    return path


def test_the_bound_is_the_best_over_the_looks_each_at_its_own_level() -> None:
    test = Anytime(0.01, n0=10, n=1000, look=100)
    path = walk(test, 0.9)
    assert [drawn for drawn, _ in path] == [100, 200, 300, 400, 600, 900, 1000]
    best = 0.0
    for k, (drawn, lower) in enumerate(path, start=1):
        hits = round(0.9 * drawn)
        best = max(best, beta.ppf(0.01 / (k * (k + 1)), hits, drawn - hits + 1))
        assert lower == pytest.approx(best, rel=1e-6)


def test_tolerance_stops_early_and_loosely_bounds_the_rest() -> None:
    full = walk(Anytime(0.001, n=100_000), 0.9)
    early = walk(Anytime(0.001, n=100_000, tolerance=0.1), 0.9)
    assert early[-1][0] < full[-1][0]
    assert early == full[: len(early)]


def test_hopeless_inputs_stop_with_a_tolerance() -> None:
    assert walk(Anytime(0.001, n=100_000, tolerance=0.1), 0.3)[-1][0] < 1000


def test_a_grid_stops_once_both_bounds_lie_in_one_cell() -> None:
    wide = walk(Anytime(0.001, n=100_000, radii=(0.25, 0.5, 0.75)), 0.8)
    assert wide[-1][0] < 3000
    assert len(wide) < len(walk(Anytime(0.001, n=100_000), 0.8))


def test_the_ledger_lists_every_look() -> None:
    spent = Anytime(0.001, n=1000).spent
    assert spent["look 1"] == pytest.approx(0.0005)
    assert sum(spent.values()) < 0.001


@pytest.mark.parametrize(
    ("settings", "early"),
    [({}, False), ({"tolerance": 0.02}, True), ({"seconds": 1.0}, True), ({"radii": (0.5,)}, True)],
)
def test_it_takes_all_draws_unless_something_may_stop_it(settings: dict[str, float], early: bool) -> None:
    test = Anytime(0.01, n0=10, n=1000, **settings)
    assert test.stops_early == early
    assert (test.expected_draws(0.9, GIVEN) is None) == early

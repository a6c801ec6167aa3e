"""Group-sequential designs against an independent evaluation in rational numbers, and the published figures."""

from __future__ import annotations

from fractions import Fraction
from math import comb, log

import numpy as np
import pytest
from scipy.special import ndtr

from ringfence.errors import ArgumentError
from ringfence.stats import group_sequential_design, look_schedule
from ringfence.stats.paths import BinomialPaths, binomial_window

SMALL = [(0.5, 0.05, 10), (0.7, 0.1, 5), (0.9, 0.05, 20), (0.85, 0.01, 18), (0.8, 0.001, 7)]


def step(paths: dict[int, Fraction], draws: int, p: Fraction) -> dict[int, Fraction]:
    """Distribution of successes after further draws, exactly."""
    after: dict[int, Fraction] = {}
    for have, weight in paths.items():
        for more in range(draws + 1):
            chance = comb(draws, more) * p**more * (1 - p) ** (draws - more)
            after[have + more] = after.get(have + more, Fraction(0)) + weight * chance
    return after


@pytest.mark.parametrize(("p0", "alpha", "look"), SMALL)
def test_the_boundaries_are_the_earliest_that_are_affordable(p0: float, alpha: float, look: int) -> None:
    design = group_sequential_design(p0, alpha, beta=0.02, n_max=4 * look, look=look)
    truth, looks = Fraction(p0), design.looks.tolist()
    for certify in (True, False):
        paths, before, spent = {0: Fraction(1)}, 0, Fraction(0)
        for k, n in enumerate(looks):
            last = k == len(looks) - 1
            share = log(1 + n / looks[0]) / log(1 + looks[-1] / looks[0])
            budget = Fraction(alpha * (1.0 if last else share / 2)) if certify else Fraction(0.02 * share)
            paths, before = step(paths, n - before, truth), n
            ordered = sorted(paths, reverse=certify)
            crossed = 0
            while crossed < len(ordered) and spent + paths[ordered[crossed]] <= budget:
                spent += paths.pop(ordered[crossed])
                crossed += 1
            if certify:
                assert design.certify_at[k] == (ordered[crossed - 1] if crossed else n + 1)
            elif last:
                assert design.give_up_at[k] == -1
            else:
                assert design.give_up_at[k] == (ordered[crossed - 1] if crossed else -1)


@pytest.mark.parametrize(("p0", "alpha", "look"), SMALL)
@pytest.mark.parametrize("p", [0.0, 0.75, 0.97, 1.0])
def test_error_power_and_draws_are_exact(p0: float, alpha: float, look: int, p: float) -> None:
    design = group_sequential_design(p0, alpha, beta=0.02, n_max=4 * look, look=look)
    for giving_up in (True, False):
        paths, before, certified, draws = {0: Fraction(1)}, 0, Fraction(0), Fraction(0)
        for n, certify, give_up in zip(design.looks, design.certify_at, design.give_up_at, strict=True):
            draws += sum(paths.values()) * int(n - before)
            paths, before = step(paths, int(n - before), Fraction(p)), n
            certified += sum(weight for have, weight in paths.items() if have >= certify)
            paths = {s: w for s, w in paths.items() if s < certify and not (giving_up and s <= give_up)}
        if giving_up:
            assert design.power(p) == pytest.approx(float(certified), rel=1e-10, abs=1e-18)
            assert design.expected_draws(p) == pytest.approx(float(draws), rel=1e-10)
        else:
            assert design.error(p) == pytest.approx(float(certified), rel=1e-10, abs=1e-18)


def test_the_schedule() -> None:
    looks = look_schedule(110_000, 100, 1.1)
    assert looks[0] == 100
    assert looks[-1] == 110_000
    assert (np.diff(looks) >= 100).all()
    assert (looks % 100 == 0).all()
    assert (looks[1:] <= np.maximum(looks[:-1] + 100, 1.1 * looks[:-1] + 50)).all()
    assert look_schedule(250, 100, 1.1).tolist() == [100, 200, 300]
    assert look_schedule(50, 100, 1.1).tolist() == [100]
    assert len(look_schedule(100_000, 1, 1.0)) == 100_000
    with pytest.raises(ArgumentError, match=r"1,000,000,000 draws in at most 100,000 looks; got 1 and 1\. Look"):
        look_schedule(10**9, 1, 1.0)


def test_the_largest_radius_at_default_settings() -> None:
    """3.835 sigma is reachable; a little more is not (CERTIFY with 100,000 draws reaches 3.811)."""

    def reachable(radius: float) -> bool:
        design = group_sequential_design(float(ndtr(radius)), 1e-3)
        return bool((design.certify_at <= design.looks).any())

    assert reachable(3.8345)
    assert not reachable(3.8355)


def test_a_design_is_read_only_and_cached() -> None:
    design = group_sequential_design(0.9, 1e-3)
    assert group_sequential_design(0.9, 1e-3) is design
    with pytest.raises(ValueError, match="read-only"):
        design.looks[0] = 1


def test_giving_up_costs_at_most_beta() -> None:
    for p0 in (0.6, 0.9, 0.99):
        for p in (p0, (1 + p0) / 2):
            design = group_sequential_design(p0, 1e-3, beta=1e-3)
            assert design.error(p) - design.power(p) <= 1e-3


@pytest.mark.parametrize("n", [1, 7, 100, 20_000])
@pytest.mark.parametrize("q", [1e-7, 0.01, 0.5, 0.98])
def test_the_binomial_window(n: int, q: float) -> None:
    first, weights, left_out = binomial_window(n, q, 1e-15)
    assert left_out <= 1e-15
    truth = Fraction(q)
    for i in {0, len(weights) // 2, len(weights) - 1}:
        count = first + i
        if n <= 100:
            exact = float(comb(n, count) * truth**count * (1 - truth) ** (n - count))
            assert weights[i] == pytest.approx(exact, rel=1e-12)
    mean = float(weights @ (first + np.arange(len(weights))))
    assert mean == pytest.approx(n * q, rel=1e-11)


def test_what_is_dropped_is_counted_as_lost() -> None:
    """Tails lighter than the dust are cut at every extension: what is left and what was lost make up everything."""
    for q in (0.02, 0.3, 0.7):
        paths, before = BinomialPaths(q, dust=1e-4), 0.0
        for draws in (50, 130, 400, 1000):
            paths.extend(draws)
            assert paths.mass + paths.lost >= 1 - 1e-12
            assert paths.lost > before
            before = paths.lost


@pytest.mark.parametrize(
    "wrong", [{"p0": 1.0}, {"alpha": 0.0}, {"beta": 1.0}, {"n_max": 0}, {"look": 0}, {"ratio": 0.9}]
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    settings = {"p0": 0.9, "alpha": 1e-3, **wrong}
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        group_sequential_design(**settings)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="p:"):
        group_sequential_design(0.9, 1e-3).error(1.5)

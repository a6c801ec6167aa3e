"""Names, checks, rounding and the inverse, shared by all mechanisms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from ringfence import mechanisms
from ringfence.errors import ArgumentError
from ringfence.mechanisms import (
    MECHANISMS,
    best_of,
    mechanism,
    mechanisms_named,
    neyman_pearson,
    one_sided,
    pixeldp,
    renyi,
)


def test_every_mechanism_is_found_by_its_name() -> None:
    l1 = {"neyman_pearson_l1", "one_sided_l1"}
    assert set(MECHANISMS) == {"neyman_pearson", "one_sided", "renyi", "pixeldp", "analytic_dp", *l1}
    for name, instance in MECHANISMS.items():
        assert instance.name == name
        assert mechanism(name) is mechanism(name.replace("_", "-")) is instance
        assert getattr(mechanisms, name) is instance


def test_best_of_is_the_maximum_and_found_by_name() -> None:
    p_a, p_b = np.array([0.4, 0.6, 0.9]), np.array([0.3, 0.05, 0.1])
    best = mechanism("best-of:one-sided+renyi")
    assert best.name == "best_of:one_sided+renyi"
    expected = np.maximum(one_sided(p_a, p_b, 0.5), renyi(p_a, p_b, 0.5))
    np.testing.assert_array_equal(best(p_a, p_b, 0.5), expected)
    np.testing.assert_array_equal(best_of(*mechanisms_named("all"))(p_a, p_b, 0.5), neyman_pearson(p_a, p_b, 0.5))
    with pytest.raises(ArgumentError, match="at least one"):
        best_of()


@pytest.mark.parametrize(
    ("name", "near"), [("reny", "renyi"), ("neymann-pearson", "neyman-pearson"), ("pixel_dp", "pixeldp")]
)
def test_a_misspelt_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ArgumentError, match=rf"Did you mean {near}\? Or load the plugin that has it"):
        mechanism(name)  # a run folder of a plugin's mechanism may name one that is near
    with pytest.raises(
        ArgumentError, match="Name one of them, or load the plugin that has it: ringfence --plugin FILE"
    ):
        mechanism("xyz")
    with pytest.raises(ArgumentError, match="must be one of"):
        mechanism("best_of:renyi+")


@pytest.mark.parametrize(
    ("p_a", "p_b", "sigma", "message"),
    [
        (1.1, 0.0, 1.0, "p_a: must lie in"),
        (float("nan"), 0.0, 1.0, "p_a: must lie in"),
        (0.5, -0.1, 1.0, "p_b: must lie in"),
        (0.7, 0.4, 1.0, "p_b: must be at most 1 - p_a"),
        (0.7, 0.2, 0.0, "sigma: must be positive"),
        (0.7, 0.2, float("inf"), "sigma: must be positive"),
    ],
)
def test_nonsense_is_refused(p_a: float, p_b: float, sigma: float, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        neyman_pearson([0.6, p_a], [0.1, p_b], sigma)


def test_rounding_of_one_minus_p_a_is_forgiven() -> None:
    assert one_sided(0.7, 0.3 + 5e-10, 1.0) == one_sided(0.7, 0.3, 1.0)


def test_shapes_broadcast() -> None:
    assert neyman_pearson(np.full((2, 1), 0.8), np.full(3, 0.1), 0.5).shape == (2, 3)
    assert neyman_pearson(0.8, 0.1, 0.5).shape == ()
    assert renyi([], [], 0.5).shape == (0,)


def test_the_probability_for_a_radius_is_phi_rounded_up() -> None:
    radii = np.array([0.0, 0.25, 0.5, 1.0, 1.9])
    p = neyman_pearson.probability_for(radii, 0.5)
    np.testing.assert_allclose(1 - p, ndtr(-radii / 0.5), rtol=5e-8)
    assert (p >= ndtr(radii / 0.5)).all()
    np.testing.assert_array_equal(p, one_sided.probability_for(radii, 0.5))


def test_no_probability_is_enough_for_a_radius_out_of_reach() -> None:
    assert pixeldp.probability_for(0.6, 1.0) == np.inf
    assert pixeldp.probability_for(0.57, 1.0) <= 1.0
    assert neyman_pearson.probability_for(100.0, 1.0) == 1.0
    with pytest.raises(ArgumentError, match="radius"):
        neyman_pearson.probability_for(-1.0, 1.0)

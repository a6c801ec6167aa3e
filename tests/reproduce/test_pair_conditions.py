"""Corollaries 1 and 4, corrected and printed, against members whose radii are known."""

from __future__ import annotations

import numpy as np
import pytest
from pair_conditions import (
    best_pair_weights,
    ensemble_radius,
    gain_cosine,
    max_margin_coupling,
    smoothing_order,
    smoothness_allowed,
    weighted_coupling,
)

from ringfence.errors import ArgumentError


def test_printed_corollary_one_claims_infinity_where_two_r_is_true() -> None:
    radius, tiny = 0.3, 1e-6
    margins = np.ones((2, 1))
    first, second = np.array([1 / radius, 0.0]), np.array([-tiny / radius, 0.0])  # opposite; both r-robust
    true = margins.sum() / np.linalg.norm(first + second)
    assert true == pytest.approx(2 * radius, rel=1e-5)
    coupling = weighted_coupling(margins)
    assert coupling == 0.5
    assert ensemble_radius(radius, -1.0, coupling, form="paper") == np.inf
    assert ensemble_radius(radius, -1.0, coupling) == pytest.approx(np.sqrt(2) * radius)


def test_orthogonal_members_reach_the_corrected_radius() -> None:
    true = 2 / np.linalg.norm([1.0, 1.0])
    assert ensemble_radius(1.0, 0.0, 0.5) == pytest.approx(true)


def test_corrected_radius_never_exceeds_that_of_curved_members_and_the_printed_one_does() -> None:
    rng = np.random.default_rng(0)
    printed_too_large = 0
    for _ in range(4000):
        classes, delta = int(rng.integers(1, 3)), float(rng.uniform(0, 0.3)) * int(rng.integers(2))
        margins, weights = rng.uniform(0.2, 1.0, (2, classes)), rng.uniform(0.2, 1.0, 2)
        gradients = rng.normal(size=(2, classes, 2))
        gradients /= np.linalg.norm(gradients, axis=2, keepdims=True)
        cosine = float(np.einsum("yd,yd->y", *gradients).max())
        coupling = weighted_coupling(margins, weights)
        for form in ("sound", "paper"):
            claimed = ensemble_radius(1.0, cosine, coupling, delta, form)  # type: ignore[arg-type]
            beta = smoothness_allowed(margins, 1.0, claimed, delta)
            # Margins f + g.x + b |x|^2 with b = +-beta are 2 beta-smooth, and 1-robust if |g| <= f + b.
            bend = beta * rng.choice([-1.0, 1.0], (2, classes))
            norms = rng.choice([0.01, 1.0], (2, classes)) * (margins + bend)
            pull = np.linalg.norm(np.einsum("j,jyd->yd", weights, gradients * norms[:, :, None]), axis=1)
            steps = np.linspace(0, min(claimed, 100.0), 201)[:, None]
            lowest = (weights @ margins - pull * steps + (weights @ bend) * steps**2).min()
            if form == "sound":
                assert lowest > -1e-9
            else:
                printed_too_large += lowest < -1e-9
    assert printed_too_large == pytest.approx(313, abs=60)


def test_max_margin_radius_holds_for_linear_members() -> None:
    rng = np.random.default_rng(1)
    for _ in range(2000):
        margins, gradients = rng.uniform(0.2, 1.0, (2, 3)), rng.normal(size=(2, 3, 4))
        gradients *= margins[:, :, None] / np.linalg.norm(gradients, axis=2, keepdims=True)
        dots = np.einsum("yd,zd->yz", *gradients) / (margins[0][:, None] * margins[1])
        pull = np.linalg.norm(gradients[0][:, None] + gradients[1], axis=2)
        true = ((margins[0][:, None] + margins[1]) / pull).min()
        assert ensemble_radius(1.0, float(dots.max()), max_margin_coupling(margins)) <= true + 1e-9


def test_best_weights_maximise_the_coupling() -> None:
    assert best_pair_weights([[0.2], [0.6]]) == pytest.approx([0.75, 0.25])
    assert weighted_coupling([[0.2], [0.6]], [0.75, 0.25]) == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    for _ in range(20):
        margins = rng.uniform(0.1, 1.0, (2, 4))
        best = weighted_coupling(margins, best_pair_weights(margins))
        others = [weighted_coupling(margins, [w, 1 - w]) for w in np.linspace(0.001, 0.999, 999)]
        assert best >= max(others)
        assert best == pytest.approx(max(others), abs=5e-4)


def test_gain_cosine_is_where_the_radius_starts_to_grow() -> None:
    for coupling, delta in ((0.5, 0.05), (0.3, 0.03), (0.5, 0.4)):
        limit = gain_cosine(coupling, delta, form="paper")
        assert ensemble_radius(1.0, max(limit, -1), coupling, delta, form="paper") == pytest.approx(1.0)
    assert gain_cosine(0.5, 0.05) == gain_cosine(0.5, 0.05, "paper")
    # D = 0.4, C = 1/2: the printed limit promises a gain below -0.63, but the corrected radius stays below r.
    assert gain_cosine(0.5, 0.4, "paper") == pytest.approx(-0.6327, abs=1e-4)
    assert gain_cosine(0.5, 0.4) == -np.inf
    assert ensemble_radius(1.0, -1.0, 0.5, 0.4) < 1


def test_printed_corollary_four_is_true_but_often_silent() -> None:
    rng, silent = np.random.default_rng(0), 0
    for _ in range(5000):
        p_a, p_b = rng.uniform(0.5001, 0.999, 2)
        p_both = rng.uniform(p_a + p_b - 1, min(p_a, p_b))
        right = rng.random()
        printed = smoothing_order(right, p_a, p_b, p_both, form="paper")
        silent += printed == "undecided"
        assert printed in ("undecided", smoothing_order(right, p_a, p_b, p_both))
    assert silent / 5000 == pytest.approx(0.27, abs=0.02)


def test_corollary_four_fails_if_right_is_taken_over_all_disagreements() -> None:
    # p_a = p_b = .6, both right .4, both wrong in different ways .2; the ensemble is right on 70% of the draws on
    # which exactly one member is, that is on 47% of all draws on which they disagree.
    exactly_one = 0.4
    before = 0.4 + 0.7 * exactly_one
    assert before > 0.6
    assert smoothing_order(0.7, 0.6, 0.6, 0.4) == smoothing_order(0.7, 0.6, 0.6, 0.4, "paper") == "before"
    loose = 0.7 * exactly_one / (exactly_one + 0.2)
    assert loose < 0.5
    assert smoothing_order(loose, 0.6, 0.6, 0.4, "paper") == "after"  # the wrong answer


def test_members_that_never_differ_gain_nothing() -> None:
    for form in ("sound", "paper"):
        assert smoothing_order(0.5, 0.8, 0.8, 0.8, form) == "after"  # type: ignore[arg-type]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="positive numbers of shape"):
        weighted_coupling([[1.0], [-0.1]])
    with pytest.raises(ArgumentError, match="cosine"):
        ensemble_radius(1.0, 1.5, 0.5)
    with pytest.raises(ArgumentError, match="coupling"):
        gain_cosine(0.7, 0.1)
    with pytest.raises(ArgumentError, match="delta"):
        gain_cosine(0.5, 1.0)
    with pytest.raises(ArgumentError, match="exceed 1/2"):
        smoothing_order(0.7, 0.4, 0.8, 0.3)
    with pytest.raises(ArgumentError, match="p_both"):
        smoothing_order(0.7, 0.9, 0.9, 0.5)

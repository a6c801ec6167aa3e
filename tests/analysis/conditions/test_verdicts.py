"""The sufficient and necessary conditions against brute force on members whose robustness is known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from slabs import Slabs, among_top_two, ball, max_margin_prediction, weighted_prediction

from ringfence.analysis.conditions import (
    max_margin_verdict,
    max_min_margin,
    pair_indicator,
    robustness_indicator,
    smoothed_smoothness,
    weighted_verdict,
)
from ringfence.errors import ArgumentError

INSTANCES = 600


def test_a_slab_reaches_the_tight_smoothness_and_nothing_exceeds_it() -> None:
    beta = smoothed_smoothness(2.0)
    assert beta == pytest.approx(2 * norm.pdf(1) / 4)
    assert smoothed_smoothness(2.0, "paper") == pytest.approx(0.5)
    step = 1e-3
    slab = [norm.cdf((2 - s) / 2) - norm.cdf((-2 - s) / 2) for s in (-step, 0.0, step)]
    assert abs(slab[0] - 2 * slab[1] + slab[2]) / step**2 == pytest.approx(beta, rel=1e-4)
    rng = np.random.default_rng(0)
    for _ in range(30):
        edges = np.sort(rng.normal(0, 3, 6))
        heights = rng.random(7)
        pieces = zip(heights, [-np.inf, *edges], [*edges, np.inf], strict=True)
        # The second derivative of a smoothed function is E f(s) (s^2/sigma^2 - 1) / sigma^2.
        curvature = sum(
            height * quad(lambda s: (s * s / 4 - 1) / 4 * norm.pdf(s, scale=2), low, high)[0]
            for height, low, high in pieces
        )
        assert abs(curvature) <= beta


@pytest.mark.parametrize("members", [1, 2, 4])
def test_weighted_verdicts_are_true(members: int) -> None:
    rng, seen, beta = np.random.default_rng(members), Counter[str](), smoothed_smoothness(1.0)
    for _ in range(INSTANCES):
        slabs, weights, radius = Slabs.random(rng, members), rng.uniform(0.1, 1, members), rng.uniform(0.1, 1.5)
        label = int(weighted_prediction(slabs.scores(np.zeros((1, 2))), weights)[0])
        differences, gradients = slabs.at_origin(label)
        verdict = weighted_verdict(differences, gradients, weights, radius, beta)
        pull = np.einsum("m,mkd->kd", weights, gradients)
        worst = -radius * pull / np.linalg.norm(pull, axis=1, keepdims=True)
        points = np.concatenate([ball(radius), worst])
        robust = bool((weighted_prediction(slabs.scores(points), weights) == label).all())
        seen[verdict] += 1
        assert verdict == "undecided" or (verdict == "robust") == robust
    assert min(seen["robust"], seen["not_robust"]) > INSTANCES / 40


@pytest.mark.parametrize("members", [2, 3, 5])
def test_max_margin_verdicts_are_true(members: int) -> None:
    rng, seen, beta = np.random.default_rng(members), Counter[str](), smoothed_smoothness(1.0)
    for _ in range(INSTANCES):
        slabs, radius = Slabs.random(rng, members), rng.uniform(0.1, 1.2)
        label = int(max_margin_prediction(slabs.scores(np.zeros((1, 2))))[0])
        scores = slabs.scores(ball(radius))
        verdict = max_margin_verdict(
            *slabs.at_origin(label), radius, beta, top_two=bool(among_top_two(scores, label).all())
        )
        robust = bool((max_margin_prediction(scores) == label).all())
        seen[verdict] += 1
        if verdict == "robust":
            assert robust
        if verdict == "not_robust":
            assert (max_min_margin(scores, label) < 0).any()
            assert not robust
    assert seen["robust"] > INSTANCES / 40
    assert seen["not_robust"] > 0


def test_two_members_give_theorem_three() -> None:
    differences, gradients = np.array([[0.5], [0.3]]), np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    pairs = pair_indicator(differences, gradients, 0.5)
    assert pairs[0, 1] == pytest.approx(np.sqrt(2) - 0.8 / 0.5)
    slack = (0.8 - 0.5 * np.sqrt(2)) / (2 * 0.25)
    assert max_margin_verdict(differences, gradients, 0.5, slack * 0.999) == "robust"
    assert max_margin_verdict(differences, gradients, 0.5, slack * 1.001) == "undecided"
    assert max_margin_verdict(differences, gradients, 1.0, 0.1) == "undecided"
    assert max_margin_verdict(differences, gradients, 1.0, 0.1, top_two=True) == "not_robust"


@pytest.mark.parametrize("members", [2, 3, 6])
def test_theorem_four_decides_the_max_margin_class(members: int) -> None:
    scores = np.random.default_rng(members).dirichlet(np.full(4, 0.6), (20_000, members))
    for label in (0, 3):
        margin, predicted = max_min_margin(scores, label), max_margin_prediction(scores) == label
        assert predicted[margin > 0].all()
        assert (margin > 0).sum() > 500
        known = among_top_two(scores, label).all(1)
        assert not predicted[known & (margin < 0)].any()
        assert predicted[~known & (margin < 0)].any()  # without the top-two premise the reverse fails


def test_printed_minimum_lets_a_harmless_class_hide_a_dangerous_one() -> None:
    # One linear member, f^{y0/1} = 1 everywhere and f^{y0/2} = 0.1 + x: class 2 wins at x = -1.
    differences, gradients = np.array([[1.0, 0.1]]), np.array([[[0.0, 0.0], [1.0, 0.0]]])
    np.testing.assert_allclose(robustness_indicator(differences, gradients, [2.0], 1.0), [-1.0, 0.9])
    assert weighted_verdict(differences, gradients, [2.0], 1.0, 0.0, form="paper") == "robust"
    assert weighted_verdict(differences, gradients, [2.0], 1.0, 0.0) == "not_robust"


def test_printed_minimum_is_often_wrong() -> None:
    rng, claims, wrong = np.random.default_rng(2), 0, 0
    for _ in range(INSTANCES):
        slabs, weights, radius = Slabs.random(rng, 2), rng.uniform(0.1, 1, 2), rng.uniform(0.1, 1.5)
        label = int(weighted_prediction(slabs.scores(np.zeros((1, 2))), weights)[0])
        verdict = weighted_verdict(*slabs.at_origin(label), weights, radius, smoothed_smoothness(1.0), form="paper")
        if verdict == "robust":
            claims += 1
            wrong += not (weighted_prediction(slabs.scores(ball(radius)), weights) == label).all()
    assert wrong / claims == pytest.approx(58 / 286, abs=0.02)


def test_the_papers_smoothness_decides_less_often() -> None:
    rng, decided = np.random.default_rng(0), Counter[str]()
    for _ in range(300):
        slabs = Slabs.random(rng, 2)
        label = int(weighted_prediction(slabs.scores(np.zeros((1, 2))), np.ones(2))[0])
        for form in ("sound", "paper"):
            verdict = weighted_verdict(*slabs.at_origin(label), [1, 1], 0.5, smoothed_smoothness(1.0, form))  # type: ignore[arg-type]
            decided[form] += verdict != "undecided"
    assert decided["sound"] / 300 == pytest.approx(0.54, abs=0.02)
    assert decided["paper"] / 300 == pytest.approx(0.10, abs=0.02)


def test_bad_arguments_are_refused() -> None:
    good = (np.ones((2, 3)), np.ones((2, 3, 4)))
    with pytest.raises(ArgumentError, match="classes-1, d"):
        robustness_indicator(good[0], np.ones((2, 2, 4)), [1, 1], 1.0)
    with pytest.raises(ArgumentError, match="one number per member"):
        robustness_indicator(*good, [1.0], 1.0)
    with pytest.raises(ArgumentError, match="not all zero"):
        robustness_indicator(*good, [0.0, 0.0], 1.0)
    with pytest.raises(ArgumentError, match="positive"):
        robustness_indicator(*good, [1.0, 1.0], 0.0)
    with pytest.raises(ArgumentError, match="form"):
        smoothed_smoothness(1.0, "printed")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="two members"):
        max_margin_verdict(np.ones((1, 3)), np.ones((1, 3, 4)), 1.0, 0.0)
    with pytest.raises(ArgumentError, match="finite"):
        robustness_indicator(np.full((2, 3), np.nan), good[1], [1, 1], 1.0)

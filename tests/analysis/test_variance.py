"""The variance model against brute force: big matrices, simulated members, simulated certification."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from score_models import covariance, margin_model
from torch import nn

from ringfence.analysis.variance import (
    MarginModel,
    certified_radii,
    collect_logits,
    estimate,
    measured_variance_ratio,
    positive_orthant,
    radius_distribution,
    variance_ratio,
)
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.stats import clopper_pearson_lower
from ringfence.types import FloatArray


@pytest.fixture
def model() -> MarginModel:
    return margin_model()


def member_logits(model: MarginModel, members: int, draws: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Members of the model: shared and own parts with exactly the covariances zeta Sigma and Sigma."""
    rng = np.random.default_rng(seed)
    classes = len(model.mean)

    def correlated(sigma: FloatArray, zeta: float, *shape: int) -> FloatArray:
        root = np.linalg.cholesky(sigma)
        shared = rng.normal(size=(1, *shape, classes)) @ root.T
        own = rng.normal(size=(members, *shape, classes)) @ root.T
        return np.sqrt(zeta) * shared + np.sqrt(1 - zeta) * own

    clean = model.mean + correlated(model.clean_covariance, model.zeta_c)
    return clean[:, None] + correlated(model.noise_covariance, model.zeta_p, draws), clean


@pytest.mark.parametrize("k", [1, 2, 5])
def test_margin_covariance_equals_the_big_matrix(model: MarginModel, k: int) -> None:
    within = model.noise_covariance + model.clean_covariance
    between = model.zeta_p * model.noise_covariance + model.zeta_c * model.clean_covariance
    big = np.kron(np.eye(k), within - between) + np.kron(np.ones((k, k)), between)
    difference = np.tile(model.margin_matrix, (1, k)) / k
    np.testing.assert_allclose(model.margin_covariance(k), difference @ big @ difference.T, rtol=1e-12)


def test_margins_are_those_of_the_top_class(model: MarginModel) -> None:
    np.testing.assert_allclose(model.margin_mean, [1.7, 0.9, 2.5, 1.2])
    assert model.runner_up == 1


@pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
def test_variance_ratio_is_the_papers(zeta: float) -> None:
    for k in (1, 2, 7):
        pairs = k * (k - 1) / 2
        assert variance_ratio(k, zeta) == pytest.approx((k + 2 * pairs * zeta) / k**2)
    assert variance_ratio(10**9, zeta) == pytest.approx(zeta, abs=1e-8)
    with pytest.raises(ArgumentError, match="k: must be at least 1"):
        variance_ratio(0, zeta)


def test_estimate_recovers_the_model_and_its_variance_ratio(model: MarginModel) -> None:
    logits, clean = member_logits(model, members=12, draws=4000, seed=3)
    found = estimate(logits, clean)
    assert found.zeta_p == pytest.approx(0.7, abs=0.03)
    np.testing.assert_allclose(found.noise_covariance, model.noise_covariance, atol=0.15)
    np.testing.assert_allclose(found.mean, clean.mean(0))
    for k in (2, 5, 12):
        measured = measured_variance_ratio(logits, k, found.top)
        np.testing.assert_allclose(measured, model.variance_ratio(k), atol=0.03)
        assert found.variance_ratio(k) == pytest.approx(measured.mean(), abs=0.03)


def test_clean_covariance_is_unbiased_when_members_share_training_effects(model: MarginModel) -> None:
    found = [
        estimate(*member_logits(model, members=8, draws=2, seed=seed), zeta_c=0.2).clean_covariance
        for seed in range(800)
    ]
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - model.clean_covariance) < 5 * error).all()
    raw = np.mean(found, axis=0) * 0.8
    assert (np.abs(raw - model.clean_covariance) > 5 * error).any()


def test_negatively_correlated_noise_is_seen() -> None:
    rng = np.random.default_rng(0)
    half = rng.normal(size=(2000, 4))
    found = estimate(np.stack([half, -half]), np.zeros((2, 4)))
    assert found.zeta_p == pytest.approx(-1.0)
    assert found.variance_ratio(2) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("logits", "clean", "rule"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3)), "shapes"),
        (np.zeros((2, 5, 3)), np.zeros((3, 3)), "shapes"),
        (np.zeros((1, 5, 3)), np.zeros((1, 3)), "at least two members"),
        (np.zeros((2, 5, 3)), np.zeros((2, 3)), "vary under noise"),
        (np.full((2, 5, 3), np.nan), np.zeros((2, 3)), "finite"),
    ],
)
def test_bad_logits_are_refused(logits: FloatArray, clean: FloatArray, rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        estimate(logits, clean)


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_orthant_probability_agrees_with_scipy_within_its_error(size: int) -> None:
    rng = np.random.default_rng(size)
    for _ in range(3):
        mean, sigma = rng.normal(1.5, 1.5, size), covariance(int(rng.integers(1000)), size)
        p, error = positive_orthant(mean, sigma)
        exact = float(multivariate_normal(np.zeros(size), sigma, abseps=1e-6, maxpts=300_000).cdf(mean))
        assert p == pytest.approx(exact, abs=2 * error + 2e-5)
        assert error < 1e-3


def test_orthant_probability_of_two_centred_coordinates() -> None:
    for rho in (-0.9, 0.0, 0.5, 1.0):
        p, error = positive_orthant(np.zeros(2), np.array([[1.0, rho], [rho, 1.0]]))
        assert p == pytest.approx(0.25 + np.arcsin(rho) / (2 * np.pi), abs=max(2 * error, 1e-5))
    assert positive_orthant(np.array([1.0, 2.0]), np.zeros((2, 2))) == (1.0, 0.0)
    assert positive_orthant(np.array([1.0, -2.0]), np.zeros((2, 2))) == (0.0, 0.0)


def test_success_probability_matches_simulated_votes(model: MarginModel) -> None:
    rng = np.random.default_rng(5)
    for k in (1, 4):
        spread = rng.multivariate_normal(np.zeros(4), model.margin_covariance(k), 200_000)
        share = ((model.margin_mean + spread) > 0).all(1).mean()
        p, error = model.success_probability(k)
        assert p == pytest.approx(share, abs=5 * np.sqrt(0.25 / 200_000) + error)


def test_success_of_a_fixed_ensemble_matches_its_real_votes(model: MarginModel) -> None:
    logits, clean = member_logits(model, members=6, draws=40_000, seed=8)
    share = (logits.mean(0).argmax(1) == model.top).mean()
    p, _ = model.success_probability(6, clean.mean(0))
    assert p == pytest.approx(share, abs=5 * np.sqrt(0.25 / 40_000))


def test_larger_votes_succeed_more_often_when_the_top_class_leads(model: MarginModel) -> None:
    success = [model.success_probability(k)[0] for k in (1, 2, 5, 20)]
    assert success == sorted(success)


def test_radius_distribution_sums_to_one_and_matches_simulated_certification() -> None:
    shown = radius_distribution(0.8, 1000, 0.001, 0.5)
    assert shown.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert (np.diff(shown.radii) > 0).all()
    lower = clopper_pearson_lower(np.random.default_rng(1).binomial(1000, 0.8, 100_000), 1000, 0.001)
    simulated = 0.5 * ndtri(np.maximum(lower, 0.5))
    assert shown.mean == pytest.approx(simulated.mean(), abs=5 * simulated.std() / np.sqrt(100_000))
    for radius in (0.33, 0.36, 0.4):
        at_least = shown.probabilities[shown.radii >= radius].sum()
        assert at_least == pytest.approx((simulated >= radius).mean(), abs=0.009)


def test_abstention_is_radius_zero() -> None:
    shown = radius_distribution(0.5, 100, 0.001, 1.0)
    assert shown.radii[0] == 0
    assert shown.abstention > 0.999
    assert certified_radii(100, 0.001, 1.0)[:51].max() == 0


def test_fixed_ensembles_spread_their_radii_more_than_the_printed_binomial(model: MarginModel) -> None:
    rows = model.sample_clean(5, 60, seed=0)
    mixed = model.radius_distribution(5, 1000, 0.001, 0.25, clean=rows)
    printed = model.radius_distribution(5, 1000, 0.001, 0.25)
    assert mixed.probabilities.sum() == pytest.approx(1.0, abs=1e-9)

    def deviation(shown: object) -> float:
        return float(np.sqrt(shown.probabilities @ shown.radii**2 - shown.mean**2))  # type: ignore[attr-defined]

    assert deviation(mixed) > 3 * deviation(printed)
    one = model.radius_distribution(5, 1000, 0.001, 0.25, clean=rows[0])
    p, _ = model.success_probability(5, rows[0])
    np.testing.assert_allclose(one.probabilities, radius_distribution(p, 1000, 0.001, 0.25).probabilities)


class Linear(nn.Module):
    def __init__(self, seed: int, classes: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = torch.randn(classes, 6, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1) @ self.weight.T


def test_logits_are_collected_under_shared_repeatable_noise() -> None:
    members, x = [Linear(0), Linear(0), Linear(1)], torch.linspace(0, 1, 6).reshape(2, 3)
    logits, clean = collect_logits(members, x, 0.5, draws=250, seed=4)
    assert logits.shape == (3, 250, 3)
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_allclose(clean[2], members[2](x[None])[0].numpy(), rtol=1e-6)
    again, _ = collect_logits(members[2:], x, 0.5, draws=120, seed=4)
    np.testing.assert_allclose(again[0], logits[2, :120], rtol=1e-6)
    other, _ = collect_logits(members[2:], x, 0.5, draws=120, seed=5)
    assert np.abs(other[0] - again[0]).min() > 0


def test_a_linear_members_noise_covariance_is_known() -> None:
    members = [Linear(seed) for seed in range(4)]
    found = estimate(*collect_logits(members, torch.zeros(6), 0.5, draws=20_000, seed=0))
    exact = np.mean([0.25 * (m.weight @ m.weight.T).numpy() for m in members], axis=0)
    np.testing.assert_allclose(found.noise_covariance, exact, atol=0.05 * exact.max())


def test_members_with_different_classes_are_refused() -> None:
    with pytest.raises(ClassifierError, match="one shape"):
        collect_logits([Linear(0), Linear(0, classes=4)], torch.zeros(6), 0.5, 100, 0)
    with pytest.raises(ArgumentError, match="members"):
        collect_logits([], torch.zeros(6), 0.5, 100, 0)


def test_the_documented_variance_ratios() -> None:
    ratios = [variance_ratio(k, 0.82) for k in (1, 2, 5, 10, 50)]
    np.testing.assert_allclose(ratios, [1, 0.910, 0.856, 0.838, 0.824], atol=5e-4)

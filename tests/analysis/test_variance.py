"""The variance model against brute force: big matrices, simulated members, simulated certification."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import ndtri
from scipy.stats import multivariate_normal
from torch import nn

from ringfence.analysis.variance import (
    MarginModel,
    certified_radii,
    collect_logits,
    estimate,
    expected_radius,
    figure1_data,
    figure2_data,
    figure3_data,
    figure7_data,
    measured_variance_ratio,
    plot_figure1,
    plot_figure2,
    plot_figure3,
    plot_figure7,
    positive_orthant,
    radius_distribution,
    variance_ratio,
)
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Staged
from ringfence.stats import clopper_pearson_lower
from ringfence.types import FloatArray, Tally


def covariance(seed: int, classes: int) -> FloatArray:
    root = np.random.default_rng(seed).normal(size=(classes, classes + 2))
    return root @ root.T / classes


@pytest.fixture
def model() -> MarginModel:
    mean = np.array([0.3, 2.0, 1.1, -0.5, 0.8])
    return MarginModel(mean, covariance(1, 5), covariance(2, 5), zeta_p=0.7, top=1, zeta_c=0.2)


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
    assert 0 < found.zeta_p_error < 0.03
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
    assert np.isnan(found.zeta_p_error)


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
        assert shown.at_least(radius) == pytest.approx((simulated >= radius).mean(), abs=0.009)


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
    logits, clean = collect_logits(members, x, sigma=0.5, draws=250, seed=4)
    assert logits.shape == (3, 250, 3)
    np.testing.assert_array_equal(logits[0], logits[1])
    np.testing.assert_allclose(clean[2], members[2](x[None])[0].numpy(), rtol=1e-6)
    again, _ = collect_logits(members[2:], x, sigma=0.5, draws=120, seed=4)
    np.testing.assert_allclose(again[0], logits[2, :120], rtol=1e-6)
    other, _ = collect_logits(members[2:], x, sigma=0.5, draws=120, seed=5)
    assert np.abs(other[0] - again[0]).min() > 0


def test_a_linear_members_noise_covariance_is_known() -> None:
    members = [Linear(seed) for seed in range(4)]
    found = estimate(*collect_logits(members, torch.zeros(6), sigma=0.5, draws=20_000, seed=0))
    exact = np.mean([0.25 * (m.weight @ m.weight.T).numpy() for m in members], axis=0)
    np.testing.assert_allclose(found.noise_covariance, exact, atol=0.05 * exact.max())


def test_members_with_different_classes_are_refused() -> None:
    with pytest.raises(ClassifierError, match="one shape"):
        collect_logits([Linear(0), Linear(0, classes=4)], torch.zeros(6), 0.5, 100, 0)
    with pytest.raises(ArgumentError, match="members"):
        collect_logits([], torch.zeros(6), 0.5, 100, 0)


def test_figure1_margins_narrow_and_radii_grow(model: MarginModel) -> None:
    data = figure1_data(replace(model, mean=model.mean + np.eye(5)[1]), (1, 5, 50), many=20_000)
    np.testing.assert_allclose(np.trapezoid(data.density, data.margins, axis=1), 1.0, atol=1e-3)
    assert (np.diff(data.density.max(1)) > 0).all()
    means = [shown.mean for shown in data.radii]
    assert means == sorted(means)
    assert data.radii[0].mean < data.more_draws.mean


def test_figure2_grows_with_draws_towards_its_limit() -> None:
    data = figure2_data((0.7, 0.99), (100, 1000, 10_000))
    assert (np.diff(data.radius, axis=1) > 0).all()
    assert (data.radius < data.limit[:, None]).all()
    assert data.radius[0, 1] == pytest.approx(expected_radius(0.7, 1000, 0.001, 0.25))


def test_figure3_matches_the_procedure_on_simulated_counts() -> None:
    stages, success = (100, 500, 3000), np.array([0.6, 0.82, 0.86, 0.9])
    data = figure3_data(success, stages, beta=0.01, n=2000)
    rows = 20_000
    rng = np.random.default_rng(0)
    procedure = Staged(radius=0.25, beta=0.01, stages=stages)
    given = Given(2, 0.25, neyman_pearson)
    for index, p in enumerate(success):
        state = procedure.start(rows, given)
        draws = np.zeros(rows)
        while (wanted := procedure.request(state)).any():
            first = state["stage"] == 0
            hits = np.where(first, wanted, rng.binomial(wanted, p))
            draws += np.where(first, 0, wanted)
            active = wanted > 0
            votes = np.stack([hits, wanted - hits, np.zeros(rows, np.int64)], 1)
            state[active] = procedure.update(state[active], Tally({"votes": votes[active]}, wanted[active]), given)
        certified = procedure.conclude(state, given).prediction == 0
        assert data.certified_staged[index] == pytest.approx(certified.mean(), abs=0.018)
        assert data.draws_staged[index] == pytest.approx(draws.mean(), abs=5 * draws.std() / np.sqrt(rows) + 1e-9)


def test_figure3_costs_most_where_the_question_is_hard() -> None:
    data = figure3_data(np.array([0.6, 0.842, 0.95]))
    assert data.draws_staged[1] > 20 * data.draws_staged[[0, 2]].max()
    np.testing.assert_allclose(data.certified_staged[[0, 2]], data.certified_fixed[[0, 2]], atol=1e-3)
    assert data.gave_up_early[0] == pytest.approx(1.0, abs=1e-6)


def test_documented_numbers() -> None:
    shown = figure2_data((0.6, 0.9, 0.99, 1.0), (1000, 10_000, 100_000)).radius
    table = [[0.032, 0.053, 0.060], [0.279, 0.307, 0.316], [0.497, 0.553, 0.573], [0.616, 0.800, 0.953]]
    np.testing.assert_allclose(shown, table, atol=6e-4)
    cost = figure3_data(np.array([0.6, 0.8, 0.83, 0.842, 0.85, 0.9, 0.99])).draws_staged
    np.testing.assert_allclose(cost, [1000, 7705, 109_795, 135_868, 117_228, 1173, 1000], atol=1)
    ratios = [variance_ratio(k, 0.82) for k in (1, 2, 5, 10, 50)]
    np.testing.assert_allclose(ratios, [1, 0.910, 0.856, 0.838, 0.824], atol=5e-4)


def test_figure7_band_covers_the_runs() -> None:
    rng = np.random.default_rng(0)
    radii, correct = rng.gamma(2.0, 0.2, (20, 400)), rng.random((20, 400)) < 0.8
    data = figure7_data(radii, correct, np.linspace(0, 1, 11))
    assert data.mean[0] == pytest.approx(correct.mean())
    accuracy = np.mean(correct & (radii >= 0.5), axis=1)
    assert data.mean[5] == pytest.approx(accuracy.mean())
    lower, upper = data.band()
    assert (lower[5] < accuracy).all()
    assert (accuracy < upper[5]).all()
    with pytest.raises(ArgumentError, match="at least two runs"):
        figure7_data(radii[:1], correct[:1], [0.0])


def test_every_figure_can_be_drawn(model: MarginModel) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 7)
    plot_figure1(figure1_data(model, (1, 5), many=2000), axes[:3])
    plot_figure2(figure2_data((0.8, 0.99), (100, 1000)), axes[3])
    plot_figure3(figure3_data(n=1000, stages=(100, 1100)), axes[4:6])
    plot_figure7(figure7_data(np.ones((2, 3)), np.ones((2, 3), bool), [0.0, 1.0]), axes[6], "runs")
    assert all(ax.lines for ax in axes)

"""Figures 4 to 6, the shares they are made of, and gradients of real members."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ringfence.analysis.conditions import (
    comparison_statistic,
    confidence_portions,
    figure4_data,
    figure5_data,
    figure6_data,
    plot_figure4,
    plot_figure5,
    plot_figure6,
    score_gradients,
)
from ringfence.analysis.conditions.studies import mean_of_uniforms_cdf, midrange_of_uniforms_cdf
from ringfence.analysis.variance.logits import noisy_copies
from ringfence.errors import ArgumentError


@pytest.mark.parametrize("members", [1, 3, 20, 30])
def test_uniform_laws_match_simulation(members: int) -> None:
    draws = np.random.default_rng(members).random((50_000, members))
    for u in (-0.1, 0.2, 0.45, 0.5, 0.58, 0.9, 1.2):
        assert mean_of_uniforms_cdf(u, members) == pytest.approx((draws.mean(1) <= u).mean(), abs=0.012)
        middle = (draws.max(1) + draws.min(1)) / 2
        assert midrange_of_uniforms_cdf(np.array(u), members) == pytest.approx((middle <= u).mean(), abs=0.012)


def test_figure4_rises_with_transferability_and_members() -> None:
    data = {members: figure4_data(members, 1500) for members in (3, 20)}
    for shown in data.values():
        assert np.corrcoef(shown.transferability, shown.difference)[0, 1] > 0.1
        assert (shown.transferability < 1).all()
    assert data[20].difference.mean() > data[3].difference.mean()
    again = figure4_data(3, 1500)
    np.testing.assert_array_equal(again.difference, data[3].difference)


@pytest.mark.parametrize(("members", "share"), [(3, 0.39), (10, 0.86), (20, 0.88)])
def test_figure4_prefers_max_margin_where_members_err_alike(members: int, share: float) -> None:
    data = figure4_data(members)
    chosen = data.difference[(data.difference != 0) & (data.transferability > 0.97)]
    assert (chosen > 0).mean() == pytest.approx(share, abs=0.01)


def test_figure5_shows_the_max_margin_ensemble_overtaking() -> None:
    sound, paper = figure5_data(members=(2, 10, 30, 200)), figure5_data(members=(2, 10, 30, 200), form="paper")
    assert (np.diff(sound.weighted) >= 0).all()
    assert (np.diff(sound.max_margin) >= 0).all()
    assert sound.max_margin[-1] > sound.weighted[-1]
    assert (sound.weighted >= paper.weighted).all()
    assert sound.weighted[1] > paper.weighted[1]
    assert sound.single == paper.single > 0


def test_printed_bound_lets_the_max_margin_ensemble_overtake_too_early() -> None:
    members = tuple(range(2, 61))

    def overtakes(form: str, **setting: object) -> int:
        shown = figure5_data(members=members, form=form, **setting)  # type: ignore[arg-type]
        return int(shown.members[shown.max_margin > shown.weighted][0])

    right = {"low": 0.3, "high": 0.4, "lams": (0.48, 0.50, 0.49)}
    assert (overtakes("sound"), overtakes("paper")) == (39, 18)
    assert (overtakes("sound", **right), overtakes("paper", **right)) == (25, 10)


def test_roc_area_is_the_probability_of_the_right_order() -> None:
    rng = np.random.default_rng(0)
    better = rng.random(400) < 0.5
    statistic = np.round(rng.normal(better * 0.8), 1)
    data = figure6_data(np.append(statistic, np.nan), np.append(better, True))
    gaps = statistic[better][:, None] - statistic[~better]
    assert data.area == pytest.approx((gaps > 0).mean() + (gaps == 0).mean() / 2)
    assert (data.false_positive[0], data.true_positive[-1]) == (0.0, 1.0)
    assert figure6_data([1.0, 2.0], [False, True]).area == 1.0
    with pytest.raises(ArgumentError, match="both outcomes"):
        figure6_data([1.0, 2.0], [True, True])


def test_confidence_portions_of_known_scores() -> None:
    scores = np.array([[[0.6, 0.3, 0.1], [0.5, 0.1, 0.4]], [[1.0, 0.0, 0.0], [0.2, 0.8, 0.0]]])
    shares = confidence_portions(scores, 0)
    np.testing.assert_allclose(shares.single, [[0.75, 0.8], [0.0, 1.0]])
    np.testing.assert_allclose(shares.weighted, [0.5 / 0.9, 1.0])
    np.testing.assert_allclose(shares.max_margin, [0.8, 1.0])
    assert shares.lams(0.5) == pytest.approx((0.5 / 0.9, 0.8), abs=0.5)
    assert shares.lams(0.0) == (1.0, 1.0)
    assert shares.transferability == pytest.approx((0.5 / 0.9 + 1) / 1.8)
    with pytest.raises(ArgumentError, match="label"):
        confidence_portions(scores, 3)


def test_the_statistic_is_larger_when_members_err_alike() -> None:
    rng = np.random.default_rng(0)
    label = rng.uniform(0.5, 0.9, (4000, 4))
    alike, apart = np.zeros((4000, 4, 6)), np.zeros((4000, 4, 6))
    for member in range(4):
        alike[:, member, [0, 1]] = np.stack([label[:, member], 1 - label[:, member]], 1)
        apart[:, member, [0, 1 + member]] = np.stack([label[:, member], 1 - label[:, member]], 1)
    assert comparison_statistic(confidence_portions(alike, 0)) > comparison_statistic(confidence_portions(apart, 0))
    assert np.isnan(comparison_statistic(confidence_portions(alike, 1)))


class Softly(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.weight = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.double().flatten(1)) @ self.weight.T


def test_score_gradients_are_those_of_the_mean_softmax() -> None:
    members, x = [Softly(0), Softly(1)], torch.tensor([[0.3, -0.2], [0.5, 0.1]])
    for sigma in (0.0, 0.4):
        found = score_gradients(members, x, 1, sigma=sigma, draws=130, seed=3)
        assert found.gradients.shape == (2, 2, 4)
        copies = torch.cat(list(noisy_copies(x, 0.4, 130, 3))) if sigma else x[None]

        def difference(member: nn.Module, shift: torch.Tensor, copies: torch.Tensor = copies) -> torch.Tensor:
            scores = member(copies.double() + shift).softmax(-1).mean(0)
            return (scores[[1]] - scores[[0, 2]]).detach()

        for index, member in enumerate(members):
            np.testing.assert_allclose(found.differences[index], difference(member, torch.zeros(2, 2)), rtol=1e-6)
            for place in range(4):
                step = torch.zeros(4, dtype=torch.float64)
                step[place] = 1e-5
                slope = difference(member, step.reshape(2, 2)) - difference(member, -step.reshape(2, 2))
                np.testing.assert_allclose(found.gradients[index, :, place], slope / 2e-5, rtol=1e-4, atol=1e-6)
    with pytest.raises(ArgumentError, match="label"):
        score_gradients(members, x, 3)
    with pytest.raises(ArgumentError, match="members"):
        score_gradients([], x, 0)


def test_every_study_can_be_drawn() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 3)
    plot_figure4(figure4_data(3, 50), axes[0])
    plot_figure5(figure5_data(members=(2, 10)), axes[1])
    plot_figure6(figure6_data([1.0, 2.0], [False, True]), axes[2])
    assert all(ax.lines for ax in axes)

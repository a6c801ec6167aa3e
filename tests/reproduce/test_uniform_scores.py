"""Bounds for uniform scores against simulated ensembles, and the studies of Yang et al. 2022, figures 4 to 6."""

from __future__ import annotations

import numpy as np
import pytest
from score_bounds import portion, weighted_bound
from score_models import worst_scores
from slabs import max_margin_prediction, weighted_prediction
from uniform_scores import (
    always_max_margin_above,
    figure4_data,
    figure5_data,
    figure6_data,
    mean_of_uniforms_cdf,
    midrange_of_uniforms_cdf,
    plot_figure4,
    plot_figure5,
    plot_figure6,
    uniform_deviation_ratio,
    uniform_max_margin_bound,
    uniform_minimum_deviation,
    uniform_preferred_ensemble,
    uniform_single_bound,
    uniform_weighted_bound,
)

from ringfence.errors import ArgumentError

DRAWS = 40_000
NOISE = 5 * np.sqrt(0.25 / DRAWS)


@pytest.mark.parametrize("members", [2, 5, 20])
def test_uniform_bounds_hold_and_are_the_general_ones(members: int) -> None:
    rng, low, high, lam = np.random.default_rng(members), 0.3, 0.6, 0.55
    label = rng.uniform(low, high, (DRAWS, members))
    scores = worst_scores(label, lam, 0.02, rng)
    weights = np.ones(members)
    sound, paper = (uniform_weighted_bound(low, high, lam, 0.02, weights, form) for form in ("sound", "paper"))  # type: ignore[arg-type]
    assert sound == pytest.approx(weighted_bound(0.45, 0.3 / np.sqrt(12), lam, 0.02, weights))
    assert 0.98 - paper == pytest.approx(2 * (0.98 - sound))
    assert (weighted_prediction(scores, weights) == 0).mean() > sound - NOISE
    widest = uniform_max_margin_bound(low, high, lam, 0.02, members)
    factor = 2 / (members + 1) * (2 / (members + 2) - 1 / (members + 1))
    assert widest == pytest.approx(max(0, 0.98 - factor * (0.3 / (0.45 - portion(lam))) ** 2 / 4))
    assert (max_margin_prediction(scores) == 0).mean() > widest - NOISE
    assert label.min(1).std() == pytest.approx(uniform_minimum_deviation(low, high, members), rel=0.03)
    assert (scores[:, 0].argmax(1) == 0).mean() == pytest.approx(
        uniform_single_bound(low, high, lam, 0.02), abs=NOISE + 0.02
    )


def test_uniform_ratio_is_that_of_the_deviations() -> None:
    for members in (2, 7, 30):
        exact = np.sqrt(1 / 12) / uniform_minimum_deviation(0.0, 1.0, members)
        assert uniform_deviation_ratio(members) == pytest.approx(exact)
        assert uniform_deviation_ratio(members, "paper") == pytest.approx(np.sqrt(2) * exact)


def test_printed_number_of_members_is_too_small() -> None:
    low, high, lam2 = 0.4, 0.6, 0.5
    printed, corrected = always_max_margin_above(0.5, lam2, "paper"), always_max_margin_above(0.5, lam2)
    assert (printed, corrected) == (pytest.approx(52.0), pytest.approx(106.0))
    members, lam1 = 60, 0.01
    assert members > printed
    weighted = uniform_weighted_bound(low, high, lam1, 0.0, np.ones(members))
    widest = uniform_max_margin_bound(low, high, lam2, 0.0, members)
    assert weighted > widest  # the printed corollary denies this
    assert (1 - weighted, 1 - widest) == (pytest.approx(0.00012, abs=5e-6), pytest.approx(0.00019, abs=5e-6))
    assert uniform_preferred_ensemble(lam1, lam2, 0.5, members, "paper") == "max_margin"
    assert uniform_preferred_ensemble(lam1, lam2, 0.5, members) == "undecided"
    for lam1 in (1e-6, 0.01, 0.3, 0.9):
        assert uniform_preferred_ensemble(lam1, lam2, 0.5, 107) == "max_margin"


@pytest.mark.parametrize("members", [1, 3, 20, 30])
def test_uniform_laws_match_simulation(members: int) -> None:
    draws = np.random.default_rng(members).random((50_000, members))
    for u in (-0.1, 0.2, 0.45, 0.5, 0.58, 0.9, 1.2):
        assert mean_of_uniforms_cdf(u, members) == pytest.approx((draws.mean(1) <= u).mean(), abs=0.012)
        middle = (draws.max(1) + draws.min(1)) / 2
        assert midrange_of_uniforms_cdf(np.array(u), members) == pytest.approx((middle <= u).mean(), abs=0.012)


@pytest.mark.parametrize(("members", "share"), [(3, 0.39), (10, 0.86), (20, 0.88)])
def test_figure4_prefers_max_margin_where_members_err_alike(members: int, share: float) -> None:
    data = figure4_data(members)
    chosen = data.difference[(data.difference != 0) & (data.transferability > 0.97)]
    assert (chosen > 0).mean() == pytest.approx(share, abs=0.01)


def test_figure4_rises_with_transferability_and_members() -> None:
    data = {members: figure4_data(members, 1500) for members in (3, 20)}
    for shown in data.values():
        assert np.corrcoef(shown.transferability, shown.difference)[0, 1] > 0.1
        assert (shown.transferability < 1).all()
    assert data[20].difference.mean() > data[3].difference.mean()
    again = figure4_data(3, 1500)
    np.testing.assert_array_equal(again.difference, data[3].difference)


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


def test_every_study_can_be_drawn() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots(1, 3)
    plot_figure4(figure4_data(3, 50), axes[0])
    plot_figure5(figure5_data(members=(2, 10)), axes[1])
    plot_figure6(figure6_data([1.0, 2.0], [False, True]), axes[2])
    assert all(ax.lines for ax in axes)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="low < high"):
        uniform_single_bound(0.5, 0.5, 0.5, 0.0)
    with pytest.raises(ArgumentError, match="mean"):
        always_max_margin_above(0.2, 0.9)
    with pytest.raises(ArgumentError, match="members"):
        uniform_minimum_deviation(0.0, 1.0, 0)

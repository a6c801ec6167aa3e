"""Figures of the variance model: their data against simulation, and the numbers that docs/ensembles-theory.md shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from score_models import margin_model
from variance_figures import (
    figure1_data,
    figure2_data,
    figure3_data,
    figure7_data,
    plot_figure1,
    plot_figure2,
    plot_figure3,
    plot_figure7,
)

from ringfence.analysis.variance import MarginModel, expected_radius
from ringfence.errors import ArgumentError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Given, Staged
from ringfence.types import Tally


@pytest.fixture
def model() -> MarginModel:
    return margin_model()


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

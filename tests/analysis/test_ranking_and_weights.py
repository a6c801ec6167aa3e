"""Ranking members and learning their weights on noisy hold-out inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.analysis.holdout import (
    Holdout,
    equal_weights,
    gradient_weights,
    grid_weights,
    holdout_scores,
    rank,
    written,
)
from ringfence.analysis.member_scores import HOLDOUT_STAGE
from ringfence.errors import ArgumentError, DataError


class Echo(nn.Module):
    """The noisy input itself as scores."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3]


def test_all_members_see_the_same_noise_of_a_stream_of_its_own() -> None:
    dataset = rf.load_dataset("default", skip=20, limit=3, first=1)
    assert dataset.ids == [20, 420, 820]
    found = holdout_scores([Echo(), Echo()], dataset, rf.Gaussian(0.5), draws=130, seed=4)
    assert found.scores.shape == (3, 130, 2, 3)
    assert (found.scores[:, :, 0] == found.scores[:, :, 1]).all()
    again = holdout_scores([Echo()], dataset, rf.Gaussian(0.5), draws=30, seed=4)
    assert (again.scores[:, :, 0] == found.scores[:, :30, 0]).all()
    assert HOLDOUT_STAGE < 0, "certification counts its stages from 0"


def test_rank_orders_by_accuracy_ties_as_given_invalid_is_wrong() -> None:
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    bad = [float("nan"), 0.0]
    scores = torch.tensor([[[wrong, right, right, bad]], [[right, right, right, right]]])
    ranked = rank(Holdout(scores, torch.tensor([0, 0])))
    assert [one.member for one in ranked] == [1, 2, 0, 3]
    assert [one.accuracy for one in ranked] == [1.0, 1.0, 0.5, 0.5]
    assert ranked[2].error == pytest.approx(0.5)


@pytest.mark.parametrize("draws", [0, 10**26])
def test_draws_that_no_memory_holds_are_refused(draws: int) -> None:
    with pytest.raises(ArgumentError, match="draws: must be 1 to 1,000,000"):
        holdout_scores([Echo()], rf.load_dataset("default", limit=1), rf.Gaussian(0.5), draws)


def test_labels_and_inputs_are_needed() -> None:
    dataset = rf.load_dataset("default", limit=2)
    with pytest.raises(DataError, match="needs labels"):
        holdout_scores([Echo()], replace(dataset, labels=[None, None]), rf.Gaussian(0.5), 1)
    with pytest.raises(DataError, match="at least one"):
        holdout_scores([Echo()], replace(dataset, ids=[], labels=[], positions=[]), rf.Gaussian(0.5), 1)


@pytest.fixture
def holdout() -> Holdout:
    """Member 0 knows the label under noise, member 1 knows it better, member 2 knows nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (400,), generator=generator)
    truth = torch.nn.functional.one_hot(labels, 4).float()[:, None, None]
    strength = torch.tensor([1.0, 2.0, 0.0])[:, None]
    return Holdout(truth * strength + torch.randn(400, 5, 3, 4, generator=generator), labels)


@pytest.mark.parametrize("on", ["logits", "softmax"])
def test_learned_weights_prefer_members_that_know(holdout: Holdout, on: str) -> None:
    equal, descent, grid = (make(holdout, on) for make in (equal_weights, gradient_weights, grid_weights))  # type: ignore[operator]
    for found in (descent, grid):
        assert sum(found.weights) == pytest.approx(1)
        assert min(found.weights) >= 0
        assert found.weights[1] == max(found.weights)
        assert found.weights[2] < 0.2
        assert found.accuracy > equal.accuracy
    assert descent.loss < equal.loss
    assert grid.accuracy >= descent.accuracy - 0.01
    assert all(round(10 * weight, 4) == round(10 * weight) for weight in grid.weights)


def test_gradient_descent_reaches_the_optimum_of_a_finer_grid(holdout: Holdout) -> None:
    flat = Holdout(holdout.scores[:100], holdout.labels[:100])
    descent = gradient_weights(flat)
    losses = [
        equal_weights(Holdout(flat.scores[:, :, [0] * a + [1] * b + [2] * (20 - a - b)], flat.labels)).loss
        for a in range(21)
        for b in range(21 - a)
    ]
    assert descent.loss <= min(losses) + 5e-4


def test_bad_grids_are_refused(holdout: Holdout) -> None:
    with pytest.raises(ArgumentError, match="must divide 1"):
        grid_weights(holdout, step=0.3)
    with pytest.raises(ArgumentError, match="gradient descent"):
        grid_weights(Holdout(holdout.scores.repeat(1, 1, 5, 1), holdout.labels))
    with pytest.raises(DataError, match="finite"):
        equal_weights(Holdout(holdout.scores * float("nan"), holdout.labels))
    assert written([0.5, 1 / 3]) == "0.5,0.3333"

"""Shares of wrong classes, and gradients of real members."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ringfence.analysis.conditions import (
    comparison_statistic,
    confidence_portions,
    score_gradients,
)
from ringfence.analysis.member_scores import DIAGNOSTIC_STAGE, noisy_copies
from ringfence.errors import ArgumentError
from ringfence.noise import Gaussian


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
        copies = torch.cat(list(noisy_copies(x, Gaussian(0.4), 130, 3, 0, DIAGNOSTIC_STAGE))) if sigma else x[None]

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

"""Gradients of real members."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from ringfence.analysis.member_scores import DIAGNOSTIC_STAGE, noisy_copies, score_gradients
from ringfence.errors import ArgumentError
from ringfence.noise import Gaussian


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

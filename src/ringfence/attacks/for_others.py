"""SmoothedScores: the smoothed classifier as a differentiable network, for attacks of other libraries."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from ringfence.attacks.through_noise import smoothed_log_probabilities
from ringfence.errors import ArgumentError
from ringfence.noise import Gaussian


@final
class SmoothedScores(nn.Module):
    """log( (1/m) sum_i softmax(f(x + e_i)) ) under m fixed draws: its cross-entropy is the smoothed loss.

    That is what SmoothAdv ascends (Salman et al. 2019, eq. 6), and any library that attacks networks can too:
    ``foolbox.PyTorchModel(SmoothedScores(net, sigma=0.25), bounds=(0, 1))``. The draws are the same for every input
    and every call, so that an attack sees one function; judge what it finds with fresh draws (``Smoothed.predict``).
    """

    def __init__(self, model: nn.Module, sigma: float, copies: int = 32, seed: int = 0) -> None:
        super().__init__()
        if copies < 1:
            raise ArgumentError("copies", "must be at least 1", copies, "32 is usual.")
        self.model, self.noise, self.copies, self.seed = model, Gaussian(sigma), copies, seed

    def forward(self, x: Tensor) -> Tensor:
        """(B, *shape) -> log-probabilities (B, K), differentiable in x."""
        drawn = torch.empty((self.copies, 1, *x.shape[1:]), device=x.device)
        self.noise.fill(drawn, self.seed)
        return smoothed_log_probabilities(self.model, x, drawn.expand(-1, len(x), *x.shape[1:]))

"""Denoised smoothing: a denoiser in front of any classifier (Salman et al. 2020; Carlini et al. 2023 for diffusion)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, score
from ringfence.errors import ArgumentError, ClassifierError


@final
class Denoised(Classifier):
    """classifier(denoiser(x)): the noise is added before the denoiser, so certificates hold for the whole.

    An ensemble of denoisers is a vote over several Denoised members. Work counts the denoiser as one forward.
    """

    wraps = "classifier"

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier

    def score(self, x: Tensor) -> Scored:
        """Scores of the denoised batch."""
        cleaned = self.denoiser(x)
        if not isinstance(cleaned, Tensor) or cleaned.shape != x.shape:
            rule = "a denoiser returns the shape it was given"
            found = tuple(cleaned.shape) if isinstance(cleaned, Tensor) else f"a {type(cleaned).__name__}"
            received = f"{tuple(x.shape)} -> {found}"
            raise ClassifierError("denoiser", rule, received, "Check the order of denoiser and classifier.")
        scores, work = score(self.classifier, cleaned)
        return Scored(scores, work + 1)


@final
class DiffusionDenoiser(nn.Module):
    """One-shot denoising by a diffusion model, given as a callable with its noise schedule (Carlini et al. 2023).

    A diffusion model sees x_t = sqrt(a_t) * x0 + sqrt(1 - a_t) * e, e ~ N(0, 1), x0 in [-1, 1]. Our x + s*e' in
    [0, 1] units is 2s in theirs, so t is the step whose sqrt((1 - a_t)/a_t) is nearest to 2s and x_t is the
    noisy input scaled by sqrt(a_t). ``predict(x_t, t)`` returns the estimated x0 (``returns="clean"``), the estimated
    noise e (``returns="noise"``): x0 = (x_t - sqrt(1-a_t) * e) / sqrt(a_t), or v = sqrt(a_t) * e - sqrt(1-a_t) * x0
    (``returns="velocity"``): x0 = sqrt(a_t) * x_t - sqrt(1-a_t) * v. x0 is clipped to [-1, 1].
    alphas: a_t for t = 0, 1, ..., falling from near 1 to near 0.
    """

    def __init__(
        self,
        predict: Callable[[Tensor, Tensor], Tensor],
        alphas: Sequence[float],
        sigma: float,
        returns: str = "noise",
    ) -> None:
        super().__init__()
        if returns not in ("noise", "clean", "velocity"):
            rule = "must be noise, clean or velocity"
            raise ArgumentError("returns", rule, repr(returns), "Say what the model predicts.")
        schedule = [float(one) for one in alphas]
        falling = all(a > b for a, b in pairwise(schedule))
        if not schedule or not all(0 < one < 1 for one in schedule) or not falling:
            remedy = "Give the cumulative products of 1 - beta."
            raise ArgumentError("alphas", "must fall strictly within (0, 1)", f"{len(schedule)} values", remedy)
        if not 0 < sigma < math.inf:
            raise ArgumentError("sigma", "must be positive", sigma, "Give the noise level of the certificate.")
        if isinstance(predict, nn.Module):
            self.network = predict  # registered, so that .to() and .eval() reach it
        self._predict, self._returns = predict, returns
        self.step = min(range(len(schedule)), key=lambda t: abs(math.sqrt((1 - schedule[t]) / schedule[t]) - 2 * sigma))
        self.alpha = schedule[self.step]

    def forward(self, x: Tensor) -> Tensor:
        """The cleaned batch (B, C, H, W) in [0, 1]."""
        scaled = math.sqrt(self.alpha) * (2 * x - 1)
        found = self._predict(scaled, torch.full((len(x),), self.step, device=x.device))
        if self._returns == "noise":
            found = (scaled - math.sqrt(1 - self.alpha) * found) / math.sqrt(self.alpha)
        elif self._returns == "velocity":
            found = math.sqrt(self.alpha) * scaled - math.sqrt(1 - self.alpha) * found
        return (found.clamp(-1, 1) + 1) / 2

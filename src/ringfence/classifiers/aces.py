"""ACES: a smoothed selector sends each input to a smoothed certification network or to a core network.

Horváth et al. 2022, "Robust and Accurate: Compositional Architectures for Randomized Smoothing".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Composed, Scored, kinds_of, score
from ringfence.classifiers.kinds import Kinds, as_logits, log_probabilities, probabilities
from ringfence.errors import ArgumentError, ClassifierError
from ringfence.record import Lane

CORE = "core"
"""Name of the fact that holds the core network's class."""


class Measured(NamedTuple):
    """Values (B,) in [0, 1], NaN where invalid, and the network forwards they took beyond the certification network."""

    value: Tensor
    work: Tensor | int


class Selector(nn.Module, ABC):
    """Certify iff value <= theta; theta = 0 selects nothing, theta = 1 everything valid. Subclasses are final.

    Every theta of the grid is a classifier of its own, and all of them are read off the same draws.
    """

    def __init__(self, thetas: float | Sequence[float]) -> None:
        super().__init__()
        self.thetas = check_thetas([thetas] if isinstance(thetas, int | float) else thetas)

    @abstractmethod
    def measure(self, x: Tensor, scores: Tensor) -> Measured:
        """Inputs (B, *shape) and the certification network's logits (B, K) -> what is compared with theta."""


@final
class EntropySelector(Selector):
    """Entropy of the certification network's probabilities, to base K, clamped to [0, 1]: no further network runs."""

    def measure(self, x: Tensor, scores: Tensor) -> Measured:
        """H = -sum_k p_k log p_k / log K."""
        log_share = log_probabilities(scores)
        entropy = -(log_share.exp() * log_share).sum(-1) / math.log(scores.shape[-1])
        return Measured(entropy.clamp(0.0, 1.0), 0)


@final
@Composed.register
class NetworkSelector(Selector):
    """A network with two outputs (core, certify); the value is the probability of the core output."""

    def __init__(self, net: nn.Module, thetas: float | Sequence[float]) -> None:
        super().__init__(thetas)
        self.net = net

    def measure(self, x: Tensor, scores: Tensor) -> Measured:
        """softmax(net(x))_0."""
        answer = score(self.net, x)
        if answer.scores.dim() != 2 or answer.scores.shape[1] != 2:
            rule, remedy = "must return two scores per input, (core, certify)", "Train it with two classes."
            raise ClassifierError("select", rule, f"shape {tuple(answer.scores.shape)}", remedy)
        return Measured(probabilities(answer.scores, kinds_of(self.net))[:, 0], answer.work)


@final
class Aces(Classifier):
    """F(x) = the smoothed certify(x) where the smoothed select(x) is 1, else core(x) (their eq. 4).

    score gives (B, 2, K): the certification network's scores, and the selector's value K times. The readout
    ``selection`` counts both for all thetas at once; each theta is a lane, named in ``names``. The core network
    sees no noise: its class is a fact of the clean input.
    """

    tells_facts = True

    def __init__(self, certify: nn.Module, select: Selector, core: nn.Module) -> None:
        super().__init__()
        self.certify, self.select, self.core = certify, select, core
        self._checked = False

    @property
    def thetas(self) -> tuple[float, ...]:
        """The grid, ascending."""
        return self.select.thetas

    @property
    def kinds(self) -> Kinds:
        """The certification network's, and a selector's value, which no softmax touches."""
        return (*kinds_of(self.certify), "probabilities")

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """One lane per theta."""
        return theta_lanes(self.thetas)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lanes."""
        return tuple(lane.name for lane in self.lanes)

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, 2, K)."""
        answer = score(self.certify, x.clone())  # what it changes in place is not for the selector
        if answer.scores.dim() != 2:
            rule, remedy = "must return (B, K)", "Lanes cannot be composed; name one classifier."
            raise ClassifierError("certify", rule, tuple(answer.scores.shape), remedy)
        measured = self.select.measure(x, as_logits(answer.scores, kinds_of(self.certify)))
        scores = answer.scores.float()
        return Scored(torch.stack([scores, measured.value[:, None].expand_as(scores)], 1), answer.work + measured.work)

    @torch.inference_mode()
    def clean_scores(self, x: Tensor) -> Tensor:
        """The core network's scores (B, K) of clean inputs (B, *shape)."""
        home = next(self.core.parameters(), x)
        batch = x.to(home.device, torch.float32)
        try:
            scores = score(self.core.eval(), batch).scores
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            rule, remedy = f"must accept a batch of shape {tuple(batch.shape)}", "Use a network for this data."
            raise ClassifierError("core", rule, error, remedy) from error
        if not self._checked:
            classes = score(self.certify.eval(), batch).scores.shape[-1]
            if scores.dim() != 2 or scores.shape[1] != classes:
                rule, received = f"must have the certification network's {classes} classes", tuple(scores.shape)
                raise ClassifierError("core", rule, f"scores {received}", "Use networks for the same classes.")
            self._checked = True
        if not bool(torch.isfinite(scores).all()):
            raise ClassifierError("core", "must return finite scores", "NaN or infinite scores", "Check the weights.")
        return scores

    def facts(self, scores: Tensor) -> list[Mapping[str, int]]:
        """The core network's classes."""
        return [{CORE: number} for number in scores.argmax(-1).tolist()]


def check_thetas(thetas: Sequence[float]) -> tuple[float, ...]:
    """Thresholds in [0, 1], each once, ascending."""
    found = tuple(float(theta) for theta in thetas)
    if not found or not all(0.0 <= theta <= 1.0 for theta in found):
        wrong = next((theta for theta in found if not 0.0 <= theta <= 1.0), "none")
        raise ArgumentError("thetas", "must lie in [0, 1]", wrong, "Write e.g. 0:1:0.01; entropies are at most 1.")
    if any(a >= b for a, b in pairwise(found)):
        raise ArgumentError("thetas", "must ascend, each once", list(found), "Sort them.")
    return found


def theta_lanes(thetas: Sequence[float]) -> tuple[Lane, ...]:
    """``theta=0.35``; further digits only where two do not tell."""
    names = (f"theta={theta:.2f}" if round(theta, 2) == theta else f"theta={theta:g}" for theta in thetas)
    return tuple(Lane(name, theta=theta) for name, theta in zip(names, thetas, strict=True))

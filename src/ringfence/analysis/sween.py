"""Weights of an ensemble's members, learned on noisy hold-out inputs (SWEEN, Liu et al. 2020; paper 001's WE)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import comb
from typing import final

import torch
from torch import Tensor

from ringfence.analysis.ranking import Holdout
from ringfence.classifiers import PROBABILITIES, Kinds, probabilities
from ringfence.classifiers.votes import ScoreKind, kinds_of_vote
from ringfence.errors import ArgumentError, DataError

MOST_POINTS = 100_000
"""Grid points that a search tries at most: 10 members have 92,378 weights of step 0.1."""


@final
@dataclass(frozen=True)
class LearnedWeights:
    """Weights (one per member, sum 1) with the vote's mean cross-entropy and accuracy on the noisy hold-out."""

    method: str
    weights: tuple[float, ...]
    loss: float
    accuracy: float


def equal_weights(holdout: Holdout, on: ScoreKind = "logits") -> LearnedWeights:
    """The plain mean, what every learned weighting is to be compared with."""
    members = holdout.scores.shape[2]
    return _judged("equal", torch.full((members,), 1.0 / members), *_multiplied(holdout, on))


def gradient_weights(
    holdout: Holdout, on: ScoreKind = "logits", steps: int = 1000, rate: float = 0.1
) -> LearnedWeights:
    """Minimise the cross-entropy of the weighted vote on noisy inputs; weights = softmax(v), from equal ones, by Adam.

    On logits the loss is CE(sum_l w_l f_l, y), on softmax scores -log sum_l w_l softmax(f_l)_y.
    """
    used, labels, kinds = _multiplied(holdout, on)
    free = torch.zeros(used.shape[1], requires_grad=True)
    optimiser = torch.optim.Adam([free], lr=rate)
    loss_of = _loss(used, labels, kinds)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of(free.softmax(0))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return _judged("gradient", free.detach().softmax(0), used, labels, kinds)


def grid_weights(holdout: Holdout, on: ScoreKind = "logits", step: float = 0.1) -> LearnedWeights:
    """The point of a grid on the weight simplex with the highest noisy accuracy, ties by the lower cross-entropy."""
    parts = round(1 / step) if step > 0 else 0
    if parts < 1 or abs(parts * step - 1) > 1e-9:
        raise ArgumentError("step", "must divide 1", step, "0.1 is the usual step.")
    members = holdout.scores.shape[2]
    points = comb(parts + members - 1, members - 1)
    if points > MOST_POINTS:
        rule = f"tries at most {MOST_POINTS} weightings"
        raise ArgumentError("grid", rule, points, "Use gradient descent, or a larger step.")
    used, labels, kinds = _multiplied(holdout, on)
    tried = (
        _judged("grid", torch.tensor(point, dtype=torch.float32) / parts, used, labels, kinds)
        for point in _compositions(parts, members)
    )
    return max(tried, key=lambda one: (one.accuracy, -one.loss))


def written(weights: Sequence[float], digits: int = 4) -> str:
    """The weights as --member-weights reads them."""
    return ",".join(f"{weight:.{digits}g}" for weight in weights)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write total as an ordered sum of so many numbers, each at least 0."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def _loss(used: Tensor, labels: Tensor, kinds: Kinds) -> Callable[[Tensor], Tensor]:
    """Mean cross-entropy of the vote, whose scores are of this kind, as a function of the weights (M,)."""
    if kinds == PROBABILITIES:
        right = used[torch.arange(len(labels)), :, labels]  # (D, M)
        return lambda weights: -(right @ weights).clamp_min(1e-12).log().mean()
    return lambda weights: torch.nn.functional.cross_entropy(torch.einsum("dmk,m->dk", used, weights), labels)


def _judged(method: str, weights: Tensor, used: Tensor, labels: Tensor, kinds: Kinds) -> LearnedWeights:
    right = torch.einsum("dmk,m->dk", used, weights).argmax(-1) == labels
    loss = float(_loss(used, labels, kinds)(weights))
    return LearnedWeights(method, tuple(weights.tolist()), loss, float(right.double().mean()))


def _multiplied(holdout: Holdout, on: ScoreKind) -> tuple[Tensor, Tensor, Kinds]:
    """What the weights multiply (D, M, K) and labels (D,), of the noisy copies on which all members gave finite scores,
    and the kind of the vote's scores."""
    scores, labels = holdout.flat
    kinds = kinds_of_vote("weighted", holdout.kinds, on)
    finite = torch.isfinite(scores).flatten(1).all(1)
    if not bool(finite.any()):
        raise DataError("hold-out", "needs finite scores", "NaN or infinite ones only", "Check the members.")
    valid = scores[finite]
    return probabilities(valid, holdout.kinds) if on == "softmax" else valid, labels[finite], kinds

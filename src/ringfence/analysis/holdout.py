"""Which member is best under noise, and how to weigh them: decided on inputs held out from certification.

Ranking by noisy accuracy (Horvath et al. 2022, ensembles, appendix D.4); weights learned by gradient descent or on a
grid (SWEEN, Liu et al. 2020; the weighted ensembles of Yang et al. 2022).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import comb
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from ringfence.analysis.member_scores import HOLDOUT_STAGE, noisy_copies
from ringfence.classifiers import LOGITS, PROBABILITIES, Kinds, Members, probabilities
from ringfence.classifiers.votes import ScoreKind, kinds_of_vote
from ringfence.data import Dataset
from ringfence.errors import ArgumentError, DataError
from ringfence.noise import Noise
from ringfence.progress import followed

MOST_POINTS = 100_000
"""Grid points that a search tries at most: 10 members have 92,378 weights of step 0.1."""


@final
@dataclass(frozen=True, eq=False)
class Holdout:
    """Scores (inputs, draws, members, K) on noisy copies, float32 on the host, labels (inputs,) int64, and what kind
    of scores each member gives."""

    scores: Tensor
    labels: Tensor
    kinds: Kinds = LOGITS

    @property
    def flat(self) -> tuple[Tensor, Tensor]:
        """Every noisy copy on its own: scores (inputs * draws, members, K) and labels (inputs * draws,)."""
        return self.scores.flatten(0, 1), self.labels.repeat_interleave(self.scores.shape[1])


@final
@dataclass(frozen=True)
class Ranked:
    """A member's place: its position as given, noisy hold-out accuracy, and standard error over inputs."""

    member: int
    accuracy: float
    error: float


@torch.inference_mode()
def holdout_scores(
    members: Sequence[nn.Module],
    dataset: Dataset,
    noise: Noise,
    draws: int,
    seed: int = 0,
    device: torch.device | None = None,
) -> Holdout:
    """All members' scores on draws noisy copies of every input, the same copies for all members."""
    device = device or torch.device("cpu")
    ensemble = Members(members).to(device).eval()
    scores: list[Tensor] = []
    labels: list[int] = []
    for item in followed(dataset, "asking the members"):
        if item.label is None:
            raise DataError(dataset.name, "a hold-out set needs labels", f"input {item.id} without one", "Add labels.")
        labels.append(item.label)
        copies = noisy_copies(item.x.to(device), noise, draws, seed, item.id, HOLDOUT_STAGE)
        scores.append(torch.cat([ensemble(batch).float().cpu() for batch in copies]))
    if not scores:
        remedy = "Choose another first input or a smaller skip."
        raise DataError(dataset.name, "needs at least one hold-out input", "none", remedy)
    return Holdout(torch.stack(scores), torch.tensor(labels), ensemble.kinds)


def rank(holdout: Holdout) -> list[Ranked]:
    """Members from best to worst by noisy accuracy, ties in the order given; invalid scores are wrong answers."""
    valid = torch.isfinite(holdout.scores).all(-1)
    right = valid & (holdout.scores.argmax(-1) == holdout.labels[:, None, None])
    per_input = right.double().mean(1).numpy()  # (inputs, members): copies of one input are not independent
    accuracy = per_input.mean(0)
    count = len(per_input)
    error = per_input.std(0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(accuracy), np.nan)
    order = np.argsort(-accuracy, kind="stable")
    return [Ranked(int(member), float(accuracy[member]), float(error[member])) for member in order]


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
    """All ways to write total as an ordered sum of so many numbers, each at least 0: what lies between bars."""
    last = total + parts - 1
    for bars in combinations(range(last), parts - 1):
        yield tuple(b - a - 1 for a, b in pairwise((-1, *bars, last)))


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

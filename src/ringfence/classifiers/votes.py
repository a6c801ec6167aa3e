"""Votes: members' scores -> one classifier's scores, "ensemble before smoothing".

Horváth et al. 2022 (variance reduction) and Yang et al. 2022 (ensembles and beyond) are where they come from.

All members see the same noise draw. A row on which any member's scores are invalid is invalid as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, invalid_rows
from ringfence.classifiers.kinds import LOGITS, PROBABILITIES, Kinds, common_kind, probabilities
from ringfence.classifiers.members import Members
from ringfence.errors import ArgumentError, check_word
from ringfence.shapes import Float

MemberScores = Float[Tensor, "rows members classes"]
Scores = Float[Tensor, "rows classes"]

ScoreKind = str
"""What weights multiply: ``logits`` or ``softmax`` (anything else is refused with a message)."""


Combine = Callable[[Tensor, Kinds], Tensor]
"""Members' scores (B, M, K), of one kind or one kind each, -> scores of the vote (B, K)."""


def soft(scores: MemberScores, kinds: Kinds = LOGITS) -> Scores:
    """Mean logits: f = (1/M) sum_l f_l (Horváth et al. 2022, eq. 2); of members that give probabilities, their mean."""
    common_kind(kinds, "a soft vote")
    return scores.mean(1)


def softmax(scores: MemberScores, kinds: Kinds = LOGITS) -> Scores:
    """Mean softmax scores: Yang et al.'s weighted ensemble with equal weights."""
    return probabilities(scores, kinds).mean(1)


def hard(scores: MemberScores, kinds: Kinds = LOGITS) -> Scores:
    """Mean one-hot argmax; ties are broken by the mean softmax, whose share is too small to do more."""
    shares = probabilities(scores, kinds)
    ballots = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(shares.dtype).mean(1)
    return ballots + shares.mean(1) / (2 * scores.shape[1])


def max_margin(scores: MemberScores, kinds: Kinds = LOGITS) -> Scores:
    """Softmax of the member with the largest gap between its top two classes; ties to the lowest index (MME)."""
    shares = probabilities(scores, kinds)
    best = shares.topk(min(2, shares.shape[-1]), dim=-1).values
    gap = best[..., 0] - best[..., -1]
    widest = gap == gap.amax(1, keepdim=True)
    first = widest & (widest.cumsum(1) == 1)  # argmax does not promise which of several maxima it returns
    return (shares * first.unsqueeze(-1)).sum(1)


VOTES: dict[str, Combine] = {"soft": soft, "softmax": softmax, "hard": hard, "max-margin": max_margin}
"""Votes that need nothing but members, by the name the command line uses."""


def kinds_of_vote(vote: str, members: Kinds, on: ScoreKind = "logits") -> Kinds:
    """What a vote of that name gives: soft, and weights on scores as they are, the kind that all members share."""
    if vote == "soft" or (vote == "weighted" and on == "logits"):
        return common_kind(members, f"a {vote} vote")
    return PROBABILITIES


def valid_only(combined: Scores, members: MemberScores) -> Scores:
    """The combined scores (B, K), NaN on the rows where some member's scores (B, M, K) are invalid."""
    return combined.masked_fill(invalid_rows(members).unsqueeze(1), torch.nan)


class Vote(Classifier):
    """Runs the members and combines their scores; subclasses are final and name the vote.

    Members whose scores do not go together are refused when it is built.
    """

    vote: ClassVar[str]

    def __init__(self, members: Sequence[nn.Module], combine: Combine | None = None, on: ScoreKind = "logits") -> None:
        super().__init__()
        self.members = Members(members)
        self._combine = combine or VOTES[self.vote]
        self._gives = kinds_of_vote(self.vote, self.members.kinds, on)

    @property
    def kinds(self) -> Kinds:
        """What the vote makes of the members' kinds."""
        return self._gives

    @final
    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, K)."""
        every = self.members.score(x)
        return Scored(valid_only(self._combine(every.scores, self.members.kinds), every.scores), every.work)


@final
class SoftVote(Vote):
    """The vote of ``soft``: mean logits."""

    vote = "soft"


@final
class SoftmaxVote(Vote):
    """The vote of ``softmax``: mean softmax scores."""

    vote = "softmax"


@final
class HardVote(Vote):
    """The vote of ``hard``: majority of predictions."""

    vote = "hard"


@final
class MaxMargin(Vote):
    """The vote of ``max_margin``: the most certain member decides."""

    vote = "max-margin"


@final
class Weighted(Vote):
    """sum_l w_l f_l / sum_l w_l on logits or on softmax scores; weights from a hold-out set (SWEEN)."""

    vote = "weighted"

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float | int], on: ScoreKind = "logits") -> None:
        super().__init__(members, weighted(weights, len(members), on), on)


def weighted(weights: Sequence[float | int], members: int, on: ScoreKind = "logits") -> Combine:
    """The vote of ``Weighted`` over so many members, after its weights were checked."""
    if len(weights) != members:
        rule = f"needs one weight per member, {members}"
        raise ArgumentError("member weights", rule, len(weights), "Give as many weights as members.")
    if not all(weight >= 0 and weight < float("inf") for weight in weights) or not sum(weights) > 0:
        rule = "must be at least 0, finite and not all zero"
        raise ArgumentError("member weights", rule, list(weights), "Give e.g. equal weights.")
    check_word("on", on, ("logits", "softmax"), "logits is the default.")
    return partial(_weighted_mean, weights=[weight / sum(weights) for weight in weights], on=on)


def _weighted_mean(scores: Tensor, kinds: Kinds, weights: Sequence[float], on: ScoreKind) -> Tensor:
    """(B, M, K) -> (B, K); the weights stay plain numbers, which no cast of the network to half precision rounds."""
    scores = probabilities(scores, kinds) if on == "softmax" else scores
    return torch.stack([weight * part for weight, part in zip(weights, scores.unbind(1), strict=True)]).sum(0)

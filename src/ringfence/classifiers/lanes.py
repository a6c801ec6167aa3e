"""Lanes: one pass over all members gives several classifiers at once, each with its own records.

Lanes share draws; every lane is certified at its own alpha. Choosing a lane per input afterwards is only
sound if alpha was split over the lanes before sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, invalid_rows
from ringfence.classifiers.kinds import Kinds, common_kind
from ringfence.classifiers.members import Members
from ringfence.classifiers.votes import VOTES, Combine, ScoreKind, kinds_of_vote, soft, valid_only, weighted
from ringfence.errors import ArgumentError
from ringfence.record import Lane


@final
class Lanes(Classifier):
    """Scores (B, lanes, K) of every single member, every vote over all members or all prefixes, every K-consensus.

    names: ``member-1`` .. ``member-M``; ``soft-M`` (with prefixes ``soft-1`` .. ``soft-M``) and so on;
    ``weighted-M``; ``consensus-K`` for each K asked for. work (B, lanes) is what each lane alone would have cost.
    weights, on: for the vote ``weighted``, which has no prefixes: weights belong to one set of members.
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        votes: Sequence[str] = ("soft",),
        prefixes: bool = False,
        singles: bool = False,
        consensus: Sequence[int] = (),
        weights: Sequence[float] = (),
        on: ScoreKind = "logits",
    ) -> None:
        super().__init__()
        self.members = Members(members)
        count = len(members)
        for vote in votes:
            if vote not in (*VOTES, "weighted"):
                rule = f"must be one of {', '.join(VOTES)}, weighted"
                raise ArgumentError("vote", rule, repr(vote), "Use soft.")
        if ("weighted" in votes) != bool(weights):
            rule = "the vote weighted and weights go together"
            raise ArgumentError("member weights", rule, list(weights), "Learn them with ringfence weights.")
        for agree in consensus:
            if not 1 <= agree <= count:
                raise ArgumentError("consensus", f"must lie between 1 and {count}", agree, "Ask for fewer to agree.")
        self._singles = singles
        combine: dict[str, Combine] = {**VOTES, **({"weighted": weighted(weights, count, on)} if weights else {})}
        voting = _vote_lanes(count, votes, prefixes)
        self._votes = [(combine[vote], length) for vote, length in voting]
        self._consensus = list(consensus)
        self._lanes = vote_lanes(count, votes, prefixes, singles, consensus)
        self.names = tuple(lane.name for lane in self._lanes)
        if not self.names:
            raise ArgumentError("vote", "needs at least one lane", "none", "Name a vote, or ask for singles.")
        if len(set(self.names)) != len(self.names):
            raise ArgumentError("vote", "names every lane once", list(self.names), "Remove the repetition.")
        given = self.members.kinds
        self._gives: Kinds = (
            *(given if singles else ()),
            *(kind for vote, length in voting for kind in kinds_of_vote(vote, given[:length], on)),
            *(kind for _ in consensus for kind in common_kind(given, "a K-consensus")),
        )

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """Singles, votes, consensus."""
        return self._lanes

    @property
    def kinds(self) -> Kinds:
        """One for each lane."""
        return self._gives

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, lanes, K), work (B, lanes)."""
        every, each = self.members.each(x)
        kinds = self.members.kinds
        ones = torch.ones(len(x), dtype=torch.int64, device=x.device)
        cost = torch.stack([ones * one for one in each], dim=1)  # (B, M)
        lanes: list[Tensor] = []
        work: list[Tensor] = []
        if self._singles:
            lanes += list(every.unbind(1))
            work += list(cost.unbind(1))
        for combine, length in self._votes:
            prefix = every[:, :length]
            lanes.append(valid_only(combine(prefix, kinds[:length]), prefix))
            work.append(cost[:, :length].sum(1))
        for agree in self._consensus:
            head, votes = every[:, :agree], every[:, :agree].argmax(-1)
            agreed = (votes == votes[:, :1]).all(1) | invalid_rows(head)
            lanes.append(torch.where(agreed[:, None], valid_only(soft(head), head), valid_only(soft(every), every)))
            work.append(torch.where(agreed, cost[:, :agree].sum(1), cost.sum(1)))
        return Scored(torch.stack(lanes, dim=1), torch.stack(work, dim=1))


def vote_lanes(
    count: int, votes: Sequence[str], prefixes: bool, singles: bool, consensus: Sequence[int]
) -> tuple[Lane, ...]:
    """The lanes, in the order of the scores' second axis."""
    return (
        *(Lane(f"member-{i + 1}", member=i + 1) for i in range(count) if singles),
        *(Lane(f"{vote}-{length}", vote, length) for vote, length in _vote_lanes(count, votes, prefixes)),
        *(Lane(f"consensus-{agree}", agree=agree) for agree in consensus),
    )


def _vote_lanes(count: int, votes: Sequence[str], prefixes: bool) -> list[tuple[str, int]]:
    """(vote, number of members) of every voting lane."""
    lengths = range(1, count + 1) if prefixes else (count,)
    return [(vote, length) for vote in votes for length in ((count,) if vote == "weighted" else lengths)]

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
from ringfence.classifiers.members import Members
from ringfence.classifiers.votes import VOTES, soft, valid_only
from ringfence.errors import ArgumentError


@final
class Lanes(Classifier):
    """Scores (B, lanes, K) of every single member, every vote over all members or all prefixes, every K-consensus.

    names: ``member-1`` .. ``member-M``; ``soft-M`` (with prefixes ``soft-1`` .. ``soft-M``) and so on;
    ``consensus-K`` for each K asked for. work (B, lanes) is what each lane alone would have cost.
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        votes: Sequence[str] = ("soft",),
        prefixes: bool = False,
        singles: bool = False,
        consensus: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.members = Members(members)
        count = len(members)
        for vote in votes:
            if vote not in VOTES:
                raise ArgumentError("vote", f"must be one of {', '.join(VOTES)}", repr(vote), "Use soft.")
        for agree in consensus:
            if not 1 <= agree <= count:
                raise ArgumentError("consensus", f"must lie between 1 and {count}", agree, "Ask for fewer to agree.")
        lengths = range(1, count + 1) if prefixes else (count,)
        self._singles = singles
        self._votes = [(VOTES[vote], length) for vote in votes for length in lengths]
        self._consensus = list(consensus)
        self.names = lane_names(count, votes, prefixes, singles, consensus)
        if len(set(self.names)) != len(self.names):
            raise ArgumentError("vote", "names every lane once", list(self.names), "Remove the repetition.")

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, lanes, K), work (B, lanes)."""
        every = self.members.score(x).scores
        rows, count = every.shape[:2]
        lanes: list[Tensor] = []
        work: list[Tensor] = []
        if self._singles:
            lanes += list(every.unbind(1))
            work += [every.new_ones(rows, dtype=torch.int64)] * count
        for combine, length in self._votes:
            prefix = every[:, :length]
            lanes.append(valid_only(combine(prefix), prefix))
            work.append(torch.full((rows,), length, device=x.device))
        for agree in self._consensus:
            head, votes = every[:, :agree], every[:, :agree].argmax(-1)
            agreed = ((votes == votes[:, :1]).all(1) | invalid_rows(head)).unsqueeze(1)
            lanes.append(torch.where(agreed, valid_only(soft(head), head), valid_only(soft(every), every)))
            work.append(torch.where(agreed.squeeze(1), agree, count))
        return Scored(torch.stack(lanes, dim=1), torch.stack(work, dim=1))


def lane_names(
    count: int, votes: Sequence[str], prefixes: bool, singles: bool, consensus: Sequence[int]
) -> tuple[str, ...]:
    """Names of the lanes, in the order of the scores' second axis."""
    lengths = range(1, count + 1) if prefixes else (count,)
    return (
        *(f"member-{i + 1}" for i in range(count) if singles),
        *(f"{vote}-{length}" for vote in votes for length in lengths),
        *(f"consensus-{agree}" for agree in consensus),
    )

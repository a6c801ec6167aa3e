"""K-consensus: if the first members agree, the rest is not asked (paper 000, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import Classifier, Scored, invalid_rows
from ringfence.classifiers.members import Members
from ringfence.errors import ArgumentError

LEAST_ROWS = 16
"""Smallest micro-batch: below it a forward costs about the same however few rows it has."""


@final
class KConsensus(Classifier):
    """If the first ``agree`` members predict one class, their mean logits are the answer; else all members'.

    Work is truly skipped: undecided rows are gathered and run through the remaining members in micro-batches
    of one fixed size, the last one padded. A row's scores do not depend on its neighbours, and every row of
    the batch gets its answer in place: draws stay counted by index, never by when they were finished.
    Members should be ordered by noisy hold-out accuracy (``ringfence rank``), before certifying.
    micro_batch: rows per gathered forward; None takes an eighth of the batch, about the share left undecided.
    """

    def __init__(self, members: Sequence[nn.Module], agree: int, micro_batch: int | None = None) -> None:
        super().__init__()
        if not 1 <= agree <= len(members):
            rule = f"must lie between 1 and the number of members, {len(members)}"
            raise ArgumentError("agree", rule, agree, "Paper 000 uses 2 to 5 of 10 members.")
        if micro_batch is not None and micro_batch < 1:
            raise ArgumentError("micro_batch", "must be at least 1", micro_batch, "Leave it out.")
        self.first = Members(members[:agree])
        self.rest = Members(members[agree:]) if agree < len(members) else None
        self.micro_batch = micro_batch

    @property
    def agree(self) -> int:
        """How many members must agree."""
        return len(self.first)

    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, K), work (B,)."""
        head = self.first.score(x)
        answer = head.scores.mean(1)
        if self.rest is None:
            return head._replace(scores=answer)
        work = torch.as_tensor(head.work, device=x.device).expand(len(x)).clone()
        invalid = invalid_rows(head.scores)
        votes = head.scores.argmax(-1)
        undecided = (votes != votes[:, :1]).any(1) & ~invalid
        answer = answer.masked_fill(invalid.unsqueeze(1), torch.nan)
        rows = undecided.nonzero().squeeze(1)
        size = self.micro_batch or max(LEAST_ROWS, -(-len(x) // 8))
        for at in range(0, len(rows), size):
            chosen = rows[at : at + size]
            padded = torch.nn.functional.pad(chosen, (0, size - len(chosen)), value=0)
            tail = self.rest.score(x.index_select(0, padded))
            every = torch.cat([head.scores.index_select(0, chosen), tail.scores[: len(chosen)]], dim=1)
            answer[chosen] = every.mean(1).masked_fill(invalid_rows(every).unsqueeze(1), torch.nan)
            extra = torch.as_tensor(tail.work, device=x.device).expand(size)[: len(chosen)]
            work[chosen] += extra
        return Scored(answer, work)

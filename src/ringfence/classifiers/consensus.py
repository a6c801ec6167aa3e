"""K-consensus: if the first members agree, the rest is not asked (Horváth et al. 2022, section 4)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from ringfence.classifiers.base import APART, Classifier, Scored, hearing, invalid_rows, unheard
from ringfence.classifiers.kinds import Kinds, common_kind
from ringfence.classifiers.members import Members
from ringfence.classifiers.votes import soft, valid_only
from ringfence.errors import ArgumentError

LAUNCH_ROWS = {"cpu": 8, "cuda": 300}
"""Fixed cost of a forward in rows: what its first row costs more than the others (a LeNet here, a ResNet-20 there)."""


def micro_batch_size(batch: int, undecided: float, device: str) -> int:
    """Rows s per gathered forward that cost least: minimises (u B + s/2)(1 + a/s), so s = sqrt(2 u B a).

    u is the share of the B rows left undecided, s/2 the padding to expect, a the fixed cost of a forward in rows.
    Rounded up to a multiple of 4; never more than the batch.
    """
    best = math.sqrt(2 * undecided * batch * LAUNCH_ROWS.get(device, LAUNCH_ROWS["cuda"]))
    return min(batch, 4 * math.ceil(best / 4))


@final
class KConsensus(Classifier):
    """If the first ``agree`` members predict one class, their mean logits are the answer; else all members'.

    Work is truly skipped: undecided rows are gathered and run through the remaining members in micro-batches
    of one fixed size, the last one padded. The host learns how many there are by halves of the batch, and asks the
    rest about the first half while the device still works on the second. A row's scores do not depend on its
    neighbours, and every row of the batch gets its answer in place: draws stay counted by index, never by when they
    were finished.
    A row is invalid if a member that was asked gave invalid scores; the others are never seen.
    Members should be ordered by noisy hold-out accuracy (``ringfence rank``), before certifying.
    micro_batch: rows per gathered forward; None chooses by ``undecided``, the share of draws expected to need all.
    ``parts``, set by the forward plan: the first members see the batch in that many slices, one after the other.
    The undecided rows of all slices then fill a micro-batch, while every forward keeps the size that is fastest.
    ``wave``, likewise: with fused members, how many rows the device takes at a time. They need no compilation for a
    shape, and a row's scores are the same in each to the bit: all undecided rows go at once, padded to whole waves.
    ``meanwhile``, set by who asks for batches: what is left to the host to do while the device works on the first
    members, where it would wait for them otherwise.
    """

    meanwhile: Callable[[], None] | None = None  # not of every instance: what one holds is part of digests of runs

    def __init__(
        self, members: Sequence[nn.Module], agree: int, micro_batch: int | None = None, undecided: float = 0.1
    ) -> None:
        super().__init__()
        if not members:
            raise ArgumentError("members", "needs at least one classifier", "an empty ensemble", "Name some members.")
        if not 1 <= agree <= len(members):
            rule = f"must lie between 1 and the number of members, {len(members)}"
            raise ArgumentError("agree", rule, agree, "Horvath et al. (2022) use 2 to 5 of 10 members.")
        if micro_batch is not None and micro_batch < 1:
            raise ArgumentError("micro_batch", "must be at least 1", micro_batch, "Leave it out.")
        if not 0 < undecided <= 1:
            raise ArgumentError("undecided", "must lie above 0 and at most 1", undecided, "0.1 is the default.")
        self.first = Members(members[:agree])
        self.rest = Members(members[agree:]) if agree < len(members) else None
        self._gives = common_kind(Members(members).kinds, "a K-consensus")
        self.micro_batch = micro_batch
        self.undecided = undecided
        self.parts = 1
        self.wave = 0

    @property
    def kinds(self) -> Kinds:
        """The kind that all members share."""
        return self._gives

    @property
    def agree(self) -> int:
        """How many members must agree."""
        return len(self.first)

    # What it calls is compiled, at two fixed shapes, and this is not (sampling/preparing.py).
    def score(self, x: Tensor) -> Scored:
        """(B, *shape) -> (B, K), work (B,)."""
        parts, slices, left = x.chunk(self.parts), [], []
        halves = {len(parts) // 2: 0, len(parts): len(parts) // 2}
        for place, part in enumerate(parts, 1):  # not a comprehension: that would be compiled as one graph of all
            slices.append(self.first.score(part))
            if self.rest is not None and place in halves:
                begin = sum(map(len, parts[: halves[place]]))
                left.append(_left_undecided(_concatenated(slices[halves[place] :]).scores, begin))
        head = _concatenated(slices)
        answer = valid_only(soft(head.scores), head.scores)
        if self.rest is None:
            return head._replace(scores=answer)
        work = _of_rows(head.work, len(x), x.device)
        usual = len(x) if self.wave else micro_batch_size(len(x), self.undecided, x.device.type)
        size = self.micro_batch or usual
        step = self.wave or size
        ask_rest = _heard_at_once(self.rest, x)
        rows = torch.empty(0, dtype=torch.int64, device=x.device)
        if self.meanwhile is not None:
            self.meanwhile()
        for half in left:  # while the device works on what comes after it: nothing waits for the host
            rows = torch.cat([rows, _rows(half)])
            ready = len(rows) if half is left[-1] else len(rows) // step * step
            for at in range(0, ready, size):
                chosen = rows[at : min(at + size, ready)]
                room = -(-len(chosen) // step) * step
                padded = torch.nn.functional.pad(chosen, (0, room - len(chosen)), value=0)
                tail = ask_rest(x[padded])  # indexing keeps the memory layout, index_select would not
                every = torch.cat([head.scores[padded], tail.scores], dim=1)
                answer[chosen] = valid_only(soft(every), every)[: len(chosen)]
                work[chosen] += _of_rows(tail.work, room, x.device)[: len(chosen)]
            rows = rows[ready:]
        return Scored(answer, work)


class _Left(NamedTuple):
    """The rows of a half, the undecided ones first, and how many those are, on its way to the host."""

    order: Tensor
    number: Tensor
    arrived: torch.cuda.Event | None


def _left_undecided(scores: Tensor, begin: int) -> _Left:
    """Rows, counted from ``begin``, on which members differ, none being invalid; scores (B, M, K)."""
    votes = scores.argmax(-1)
    undecided = (votes != votes[:, :1]).any(1) & ~invalid_rows(scores)
    order, count = begin + undecided.byte().argsort(descending=True, stable=True), undecided.sum()
    if not count.is_cuda:
        return _Left(order, count, None)
    count = torch.empty((), dtype=count.dtype, pin_memory=True).copy_(count, non_blocking=True)
    return _Left(order, count, torch.cuda.current_stream(order.device).record_event())


def _rows(left: _Left) -> Tensor:
    """The undecided rows of a half, once it is known how many there are."""
    if left.arrived is not None:
        left.arrived.synchronize()
    return left.order[: int(left.number)]


def _heard_at_once(rest: Members, x: Tensor) -> Callable[[Tensor], Scored]:
    """How the rest is asked; where somebody hears networks, he hears them now, about all of x, and not again."""
    if not hearing():
        return rest.score
    rest.score(x)
    return unheard(rest.score)


def _of_rows(work: Tensor | int, rows: int, device: torch.device) -> Tensor:
    """Work (rows,), made on the device: a number that is sent there is waited for."""
    if isinstance(work, int):
        return torch.full((rows,), work, device=device)
    return work.expand(rows).clone()


# Undecided rows differ in number from batch to batch: as part of one graph they would be compiled for each number.
APART.append((KConsensus, "score", False))
APART.extend((sys.modules[__name__], name, False) for name in ("_left_undecided", "_rows", "_heard_at_once"))


def _concatenated(slices: list[Scored]) -> Scored:
    """The answers to consecutive slices of a batch as one; work is a number for every slice, or (rows,) for every."""
    if len(slices) == 1:
        return slices[0]
    works = [part.work for part in slices]
    work = works[0] if isinstance(works[0], int) else torch.cat([torch.as_tensor(one) for one in works])
    return Scored(torch.cat([part.scores for part in slices]), work)

"""Votes counted on CUDA in one kernel: the best class of every row and lane, one more in its cell.

What ``Votes`` reads out and ``DeviceCounts`` scatters, without the dozen small kernels in between and without loading
torch's compiler, which takes longer than many a run.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ringfence.noise.checked import where_it_is
from ringfence.sampling.readout import Votes

ELEMENTS = 2048
"""Scores per program, about."""


@triton.jit(do_not_specialize=["total"])  # type: ignore[untyped-decorator]
def _count(  # type: ignore[no-untyped-def]
    cells, scores, slots, total, LANES: tl.constexpr, CLASSES: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr
):
    # PADDED: a power of two above CLASSES, so that there is room for the cell of invalid scores.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there, column = row < total, tl.arange(0, PADDED)
    inside = there[:, None] & (column < CLASSES)[None, :]
    score = tl.load(scores + row[:, None] * CLASSES + column[None, :], mask=inside, other=float("-inf"))
    finite = tl.where(inside, tl.abs(score) < float("inf"), True)  # false for NaN too
    valid = tl.min(finite.to(tl.int32), axis=1) == 1
    vote = tl.where(valid, tl.argmax(score, axis=1), CLASSES)  # the first of equals, as torch has it
    line = tl.load(slots + row // LANES, mask=there, other=0) * LANES + row % LANES
    first = tl.min(tl.where(there, line, 1 << 62), axis=0)
    if first == tl.max(tl.where(there, line, -1), axis=0):
        # Draws of one input: added up here, because thousands of additions to one cell would wait for each other.
        votes = tl.sum(((vote[:, None] == column[None, :]) & there[:, None]).to(tl.int64), axis=0)
        tl.atomic_add(cells + first * (CLASSES + 1) + column, votes, mask=votes > 0, sem="relaxed")
    else:
        ones = tl.full([ROWS], 1, tl.int64)
        tl.atomic_add(cells + line * (CLASSES + 1) + vote, ones, mask=there, sem="relaxed")


def add_votes(cells: Tensor, scores: Tensor, slots: Tensor) -> None:
    """cells[slots[r], lane, vote of scores[r, lane]] += 1; invalid scores vote for the last cell, K.

    cells: (slots, lanes, K + 1) int64, contiguous; scores: (B, lanes, K) float32; slots: (B,) int64.
    """
    rows, lanes, classes = scores.shape
    padded = triton.next_power_of_2(classes + 1)
    each = max(1, ELEMENTS // padded)
    grid = (triton.cdiv(rows * lanes, each),)
    sizes = {"LANES": lanes, "CLASSES": classes, "PADDED": padded, "ROWS": each}
    with where_it_is(cells):
        _count[grid](cells, scores.contiguous(), slots, rows * lanes, **sizes)


def is_right(device: torch.device) -> bool:
    """Whether votes on this device land where they should: of one input and of several, ties, NaN and infinities."""
    return all(_as_torch_counts(device, rows, lanes, slots) for rows, lanes, slots in ((900, 1, 1), (300, 2, 3)))


def _as_torch_counts(device: torch.device, rows: int, lanes: int, inputs: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (rows, lanes, 5), generator=generator).float()
    scores[0, 0, 1], scores[1, -1, 4], scores[2, 0, 0] = torch.nan, torch.inf, -torch.inf
    slots = torch.randint(0, inputs, (rows,), generator=generator)
    found, wanted = (torch.zeros(inputs, lanes, 6, dtype=torch.int64, device=one) for one in (device, "cpu"))
    add_votes(found, scores.to(device), slots.to(device))
    votes = Votes().cells(scores).squeeze(2)
    wanted.index_put_((slots.unsqueeze(1), torch.arange(lanes), votes), torch.ones_like(votes), accumulate=True)
    return torch.equal(found.cpu(), wanted)

"""Exact noise on CUDA in one kernel: the integers of inversion.py, drawn, added to their inputs, cast and laid out."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ringfence.noise import inversion
from ringfence.noise.kernel import BLOCK


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    out,
    clean,
    table,
    cells,
    values,
    lowest,
    count,
    step,
    rows,
    SIZE: tl.constexpr,
    CHANNELS: tl.constexpr,
    HALVINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    QUARTER: tl.constexpr = (SIZE + 3) // 4
    PIXELS: tl.constexpr = SIZE // CHANNELS
    MANY: tl.constexpr = (1 << 34) - 1
    row = tl.program_id(0).to(tl.int64)
    slot, key, place = tl.load(table + row), tl.load(table + rows + row), tl.load(table + 2 * rows + row)
    clean += slot * SIZE
    out += row * SIZE
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    second = tl.zeros([BLOCK], tl.int32) + place.to(tl.int32)
    zero = tl.zeros([BLOCK], tl.int32)
    a, b, c, d = tl.philox(key, i, second, zero, zero)
    for quarter in tl.static_range(4):
        word = a if quarter == 0 else b if quarter == 1 else c if quarter == 2 else d
        first = word.to(tl.uint32, bitcast=True).to(tl.int64)
        number = i + quarter * QUARTER
        there = (i < QUARTER) & (number < SIZE)
        cell = tl.load(cells + (first >> 16))
        edge = cell & MANY
        found = (cell >> 34).to(tl.int32) + (edge < first).to(tl.int32)
        undecided = there & ((edge == first) | (edge == MANY))
        if tl.max(undecided.to(tl.int32), 0) > 0:
            e, f, g, h = tl.philox(key, i, second, zero + 1, zero)
            lower = e if quarter == 0 else f if quarter == 1 else g if quarter == 2 else h
            # The upper bit turned over: so signed numbers are in the order of the 64-bit words.
            whole = ((first << 32) | lower.to(tl.uint32, bitcast=True).to(tl.int64)) ^ (-9223372036854775808)
            under = zero
            for halving in tl.static_range(HALVINGS):
                probe = under + (1 << (HALVINGS - 1 - halving))
                asked = undecided & (probe <= count)
                value = tl.load(values + probe - 1, mask=asked, other=0)
                under = tl.where(asked & (value <= whole), probe, under)
            found = tl.where(undecided, under, found)
        drawn = tl.where(place >= 0, found + lowest, 0).to(tl.float32)  # a row without a place is padding
        noisy = (tl.load(clean + number, mask=there, other=0.0) + drawn) * step
        place_in_row = (number % PIXELS) * CHANNELS + number // PIXELS
        tl.store(out + place_in_row, noisy.to(out.dtype.element_ty), mask=there)


def add_integers(out: Tensor, clean: Tensor, table: Tensor, law: tuple[str, float, int]) -> None:
    """out[r] = (clean[table[0, r]] + the integers of key table[1, r] in place table[2, r]) / lattice; place -1: none.

    out, table: as in kernel.add_noise; clean: (slots, *shape) float32, contiguous, whole numbers of lattice steps.
    """
    guide = inversion.guide_on(*law, str(out.device))
    size, count = clean[0].numel(), len(guide.table.values)
    last = out.dim() == 4 and not out.is_contiguous()
    grid = (len(out), triton.cdiv(triton.cdiv(size, 4), BLOCK))
    _draw[grid](
        out,
        clean,
        table,
        guide.cells,
        guide.values,
        guide.table.lowest,
        count,
        1 / law[2],
        len(out),
        SIZE=size,
        CHANNELS=out.shape[1] if last else 1,
        HALVINGS=count.bit_length(),
        BLOCK=BLOCK,
        num_warps=BLOCK // 32,
    )


def is_right(device: torch.device) -> bool:
    """Whether draws on this device are the integers of the CPU, bit by bit, those that take 64 bits among them."""
    return inversion.are_drawn_by(add_integers, device)

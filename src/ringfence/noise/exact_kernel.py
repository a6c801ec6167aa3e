"""Exact noise on CUDA in one kernel: the integers of exact.py, drawn, added to their inputs, cast and laid out.

A float32 guess says next to which threshold a word lies, and comparing integers decides. Guesses are checked for every
law on its device; where they are not good enough, and for the few words that 32 bits do not tell, all 64 are searched.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from ringfence.noise import exact as exact_noise
from ringfence.noise.checked import where_it_is
from ringfence.noise.kernel import BLOCK, FAMILIES, put, words_at

FAR: Final = (1 << 12) - 1
"""Words in the tails, so far from the end or nearer, are searched for: beyond 2^-20 thresholds may share a word."""
EVERYWHERE: Final = (1 << 31) - 1
"""No word is farther from the end than this."""
USUAL_HALVINGS: Final = 16
"""Of a search among fewer than 65,536 thresholds: one kernel for most laws, where each would be compiled by itself. Few
numbers are searched for."""
OF_LAW: Final = ["steps", "far", "lowest", "count", "step", "rows"]
"""Numbers that no kernel is compiled for."""


@triton.jit
def _from_end(word):  # type: ignore[no-untyped-def]
    """How many words lie beyond this one in its tail, and whether that is the upper one."""
    whole = word.to(tl.int32, bitcast=True)
    return whole ^ (whole >> 31), whole < 0


@triton.jit  # type: ignore[untyped-decorator]
def _guess(word, steps, FAMILY: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where in its law a word lies, in steps of the lattice, of which the scale has so many; threshold k is at k + 1/2.

    Tails keep their resolution, because small integers are exact in float32.
    """
    end, upper = _from_end(word)
    tail = end.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10  # (end + 1/2) / 2^32
    if FAMILY == 0:
        # The normal quantile over 1 - 2 tail, as a function of ln tail (1 - tail) (Giles 2012): a minimax polynomial
        # of degree 6 that is off by 1.2e-4 at most, down to tails of 2^-20.
        z = libdevice.fast_log2f(tail - tail * tail) + 11.0
        ratio = 5.107577435551648e-06 + z * (1.2877525690401868e-06 + z * 6.275302267596899e-08)
        ratio = -0.004429712953148931 + z * (-0.00013224203707138546 + z * ratio)
        size = (steps - 2.0 * steps * tail) * (3.3003827752989023 + z * (-0.19267969835711005 + z * ratio))
    elif FAMILY == 1:
        size = steps * 1.7320508075688772 - steps * 3.4641016151377544 * tail
    else:
        size = (libdevice.fast_log2f(tail) + 1.0) * (steps * -0.4901290717342736)  # -ln(2 tail) / sqrt(2)
    return tl.where(upper, size, -size)


@triton.jit  # type: ignore[untyped-decorator]
def _decided(word, edges, steps, far, FAMILY: tl.constexpr):  # type: ignore[no-untyped-def]
    """The integer of a word as float32, and whether 32 bits did not tell; edges points at that of threshold 0."""
    # In numbers next to 3/2 2^23 the unit is the last bit: the sum is rounded to the nearest threshold.
    shifted = (_guess(word, steps, FAMILY) - 0.5) + 12582912.0
    nearest = shifted.to(tl.int32, bitcast=True) - 0x4B400000
    end, _ = _from_end(word)
    edge = tl.load(edges + nearest, mask=end > far, other=word.to(tl.int32, bitcast=True))  # equal: undecided
    word, edge = word.to(tl.uint32, bitcast=True), edge.to(tl.uint32, bitcast=True)
    return (shifted - 12582912.0) + tl.where(word > edge, 1.0, 0.0), word == edge


@triton.jit  # type: ignore[untyped-decorator]
def _searched(word, second, values, count, HALVINGS: tl.constexpr):  # type: ignore[no-untyped-def]
    """How many thresholds are at most the 64-bit number of two words; no more than ``count``."""
    # The upper bit turned over: so signed numbers are in the order of the 64-bit words.
    upper = word.to(tl.uint32, bitcast=True).to(tl.int64) << 32
    whole = (upper | second.to(tl.uint32, bitcast=True).to(tl.int64)) ^ (-9223372036854775808)
    under = (whole * 0).to(tl.int32)
    for halving in tl.static_range(HALVINGS):
        probe = under + (1 << (HALVINGS - 1 - halving))
        value = tl.load(values + probe - 1, mask=probe <= count, other=9223372036854775807)
        under = tl.where((probe <= count) & (value <= whole), probe, under)
    return under


@triton.jit(do_not_specialize=OF_LAW)  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    out,
    clean,
    table,
    edges,
    values,
    steps,
    far,
    lowest,
    count,
    step,
    rows,
    SIZE: tl.constexpr,
    CHANNELS: tl.constexpr,
    FAMILY: tl.constexpr,
    HALVINGS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot, key, place = tl.load(table + row), tl.load(table + rows + row), tl.load(table + 2 * rows + row)
    clean += slot * SIZE
    out += row * SIZE
    edges += 1 - lowest
    i, a, b, c, d = words_at(key, place, 0, BLOCK)
    one, open_one = _decided(a, edges, steps, far, FAMILY)
    two, open_two = _decided(b, edges, steps, far, FAMILY)
    three, open_three = _decided(c, edges, steps, far, FAMILY)
    four, open_four = _decided(d, edges, steps, far, FAMILY)
    undecided = open_one | open_two | open_three | open_four
    if tl.max(undecided.to(tl.int32), 0) > 0:
        _, e, f, g, h = words_at(key, place, 1, BLOCK)
        one = tl.where(open_one, (_searched(a, e, values, count, HALVINGS) + lowest).to(tl.float32), one)
        two = tl.where(open_two, (_searched(b, f, values, count, HALVINGS) + lowest).to(tl.float32), two)
        three = tl.where(open_three, (_searched(c, g, values, count, HALVINGS) + lowest).to(tl.float32), three)
        four = tl.where(open_four, (_searched(d, h, values, count, HALVINGS) + lowest).to(tl.float32), four)
    live = tl.where(place >= 0, 1.0, 0.0)  # a row without a place is padding
    put(out, clean, step, i, one * live, two * live, three * live, four * live, SIZE, CHANNELS)


@triton.jit(do_not_specialize=["steps", "count"])  # type: ignore[untyped-decorator]
def _guess_all(out, words, steps, count, FAMILY: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + i, mask=i < count, other=0)
    tl.store(out + i, _guess(word, steps, FAMILY), mask=i < count)


def guesses(words: Tensor, law: exact_noise.Law) -> Tensor:
    """Where words (n,), int32 by their bits, lie in a law, as the kernel guesses: (n,) float32, in steps."""
    out = torch.empty(words.shape, dtype=torch.float32, device=words.device)
    constants = {"FAMILY": FAMILIES[law.family], "BLOCK": BLOCK}
    grid = (triton.cdiv(len(words), BLOCK), 1)
    with where_it_is(out):
        _guess_all[grid](out, words, law.steps, len(words), **constants, num_warps=BLOCK // 32)
    return out


@lru_cache(maxsize=8)
def tables_on(device: str, law: exact_noise.Law) -> tuple[Tensor, Tensor, int]:
    """On a device: the upper halves of the thresholds as int32 by their bits, with one below and one above that no word
    passes, the thresholds as the search wants them, and up to which distance from the end words are searched for."""
    found = exact_noise.guide(*law)
    edges = np.concatenate([[0], found.upper, [0xFFFFFFFF]]).astype(np.uint32).view(np.int32)
    values = (found.table.values ^ np.uint64(1 << 63)).view(np.int64)
    landmarks = found.landmarks(FAR)
    words = torch.from_numpy(landmarks.astype(np.uint32).view(np.int32)).to(device)
    far = FAR if found.surrounds(landmarks, guesses(words, law).cpu().numpy()) else EVERYWHERE
    return torch.from_numpy(edges).to(device), torch.from_numpy(values).to(device), far


def add_integers(out: Tensor, clean: Tensor, table: Tensor, law: exact_noise.Law) -> None:
    """out[r] = (clean[table[0, r]] + the integers of key table[1, r] in place table[2, r]) / lattice; place -1: none.

    out, table: as in kernel.add_noise; clean: (slots, *shape) float32, contiguous, whole numbers of lattice steps.
    """
    edges, values, far = tables_on(str(out.device), law)
    size = clean[0].numel()
    last = out.dim() == 4 and not out.is_contiguous()
    grid = (len(out), triton.cdiv(triton.cdiv(size, 4), BLOCK))
    with where_it_is(out):
        _draw[grid](
            out,
            clean,
            table,
            edges,
            values,
            law.steps,
            far,
            exact_noise.guide(*law).table.lowest,
            len(values),
            1 / law.lattice,
            len(out),
            SIZE=size,
            CHANNELS=out.shape[1] if last else 1,
            FAMILY=FAMILIES[law.family],
            HALVINGS=max(USUAL_HALVINGS, len(values).bit_length()),
            BLOCK=BLOCK,
            num_warps=BLOCK // 32,
        )


def is_right(device: torch.device, family: str) -> bool:
    """Whether draws of a family on this device are the integers of the CPU, bit by bit."""
    return exact_noise.are_drawn_by(add_integers, device, family)

"""Float noise on CUDA in one kernel: drawn from the key of each row, added to its input, cast and laid out.

The numbers are those of philox.py. A draw depends on its key and its place alone, not on its neighbours.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ringfence.noise import philox
from ringfence.noise.checked import where_it_is

FAMILIES = {"gaussian": 0, "uniform": 1, "laplace": 2}
"""The families as the kernel knows them; it is compiled for each."""

BLOCK = 256
"""Counters per program, one for each thread: four numbers each."""


@triton.jit
def _sine_and_cosine(word):  # type: ignore[no-untyped-def]
    """Of the angle pi word / 2^31, for words of all 32 bits, to float32's accuracy.

    Whole quarters of a turn are taken off as integers, exactly: what is left needs no more than three terms (minimax
    polynomials on [-pi/4, pi/4], Cephes), and no branch for large angles.
    """
    quarters = (word + 0x20000000) >> 30
    angle = (word - (quarters << 30)).to(tl.float32) * 1.4629180792671596e-09  # pi / 2^31
    square = angle * angle
    sine = angle + angle * square * (-1.6666654611e-1 + square * (8.3321608736e-3 - square * 1.9515295891e-4))
    curve = 4.166664568298827e-2 + square * (-1.388731625493765e-3 + square * 2.443315711809948e-5)
    cosine = 1.0 + square * (-0.5 + square * curve)
    odd = (quarters & 1) != 0
    first, second = tl.where(odd, cosine, sine), tl.where(odd, sine, cosine)
    return tl.where((quarters & 2) != 0, -first, first), tl.where(((quarters + 1) & 2) != 0, -second, second)


@triton.jit
def _normals(first, second, scale):  # type: ignore[no-untyped-def]
    """Two normals of two words."""
    # u on {1..2^31}/2^31: small integers are exact in float32, so that the tail keeps its resolution.
    uniform = ((first >> 1).to(tl.int32).to(tl.float32) + 1.0) * 4.656612873077393e-10
    radius = scale * tl.sqrt(-2.0 * tl.log(uniform))
    sine, cosine = _sine_and_cosine(second.to(tl.int32, bitcast=True))
    return radius * cosine, radius * sine


@triton.jit
def _uniform(word, scale):  # type: ignore[no-untyped-def]
    """sqrt(3) (w + 1/2) / 2^31 of a word, times the scale."""
    return (word.to(tl.int32, bitcast=True).to(tl.float32) + 0.5) * (scale * 8.065490087349327e-10)  # sqrt(3) / 2^31


@triton.jit
def _laplace(word, scale):  # type: ignore[no-untyped-def]
    """-ln(u) / sqrt(2) with the sign of the word, u on {1..2^31}/2^31 from its lower bits, times the scale."""
    whole = word.to(tl.int32, bitcast=True)
    size = scale * tl.log(((whole & 0x7FFFFFFF).to(tl.float32) + 1.0) * 4.656612873077393e-10)
    return tl.where(whole < 0, size, -size) * 0.7071067811865476


@triton.jit  # type: ignore[untyped-decorator]
def words_at(key, place, third, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The counters i of this program, and Philox's four words at (i, place, third, 0)."""
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    zero = tl.zeros([BLOCK], tl.int32)
    a, b, c, d = tl.philox(key, i, zero + place.to(tl.int32), zero + third, zero)
    return i, a, b, c, d


@triton.jit  # type: ignore[untyped-decorator]
def _clean_at(clean, i, part, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of one row of the inputs, the numbers that get their noise from word ``part`` of the counters i."""
    QUARTER: tl.constexpr = (SIZE + 3) // 4
    number = i + part * QUARTER
    return tl.load(clean + number, mask=(i < QUARTER) & (number < SIZE), other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _put_at(out, value, i, part, SIZE: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The same numbers of the result, cast and laid out."""
    # Constants: dividing by numbers that are none takes many instructions.
    QUARTER: tl.constexpr = (SIZE + 3) // 4
    PIXELS: tl.constexpr = SIZE // CHANNELS
    number = i + part * QUARTER
    place_in_row = (number % PIXELS) * CHANNELS + number // PIXELS  # one channel: the number itself
    tl.store(out + place_in_row, value.to(out.dtype.element_ty), mask=(i < QUARTER) & (number < SIZE))


@triton.jit  # type: ignore[untyped-decorator]
def put(out, clean, step, i, one, two, three, four, SIZE: tl.constexpr, CHANNELS: tl.constexpr):  # type: ignore[no-untyped-def]
    """step (clean + noise) of one row, the noise being that of the four words of the counters i."""
    # All is read before anything is written: no compiler could tell that it is not the same memory.
    one += _clean_at(clean, i, 0, SIZE)
    two += _clean_at(clean, i, 1, SIZE)
    three += _clean_at(clean, i, 2, SIZE)
    four += _clean_at(clean, i, 3, SIZE)
    _put_at(out, one * step, i, 0, SIZE, CHANNELS)
    _put_at(out, two * step, i, 1, SIZE, CHANNELS)
    _put_at(out, three * step, i, 2, SIZE, CHANNELS)
    _put_at(out, four * step, i, 3, SIZE, CHANNELS)


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    out,
    clean,
    table,
    sigma,
    rows,
    SIZE: tl.constexpr,
    CHANNELS: tl.constexpr,
    FAMILY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    slot, key, place = tl.load(table + row), tl.load(table + rows + row), tl.load(table + 2 * rows + row)
    scale = tl.where(place >= 0, sigma, 0.0)  # a row without a place is padding
    clean += slot * SIZE
    out += row * SIZE
    i, a, b, c, d = words_at(key, place, 0, BLOCK)
    if FAMILY == 0:
        one, two = _normals(a, b, scale)
        three, four = _normals(c, d, scale)
    elif FAMILY == 1:
        one, two, three, four = _uniform(a, scale), _uniform(b, scale), _uniform(c, scale), _uniform(d, scale)
    else:
        one, two, three, four = _laplace(a, scale), _laplace(b, scale), _laplace(c, scale), _laplace(d, scale)
    put(out, clean, 1.0, i, one, two, three, four, SIZE, CHANNELS)


def add_noise(out: Tensor, clean: Tensor, table: Tensor, sigma: float, family: str = "gaussian") -> None:
    """out[r] = clean[table[0, r]] + the draw of key table[1, r] in place table[2, r]; place -1: no noise.

    out: (B, *shape), contiguous or channels last, of any floating type; clean: (slots, *shape) float32, contiguous;
    table: (3, B) int64, contiguous.
    """
    size = clean[0].numel()
    last = out.dim() == 4 and not out.is_contiguous()
    channels = out.shape[1] if last else 1
    grid = (len(out), triton.cdiv(triton.cdiv(size, 4), BLOCK))
    shape = {"SIZE": size, "CHANNELS": channels, "FAMILY": FAMILIES[family], "BLOCK": BLOCK}
    with where_it_is(out):
        _draw[grid](out, clean, table, sigma, len(out), **shape, num_warps=BLOCK // 32)


def is_right(device: torch.device, family: str) -> bool:
    """Whether a few draws of a family on this device are what philox.py says."""
    return philox.are_drawn_by(add_noise, device, family)

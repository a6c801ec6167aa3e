"""3 x 3 convolutions of few channels on CUDA, forward, to the input and to the weight, as Triton kernels.

cuDNN's work on 32 or 64 channels at a time and take several times as long as moving the activations. Memory is channels
last: an image's places one after the other, all channels of a place together; weights (K, 9, C). Sums are in float32,
and always in the same order: a training ends with the same weights each time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

TILE = 256
"""Places of a program."""
RANGES = {16: (1024, 1), 32: (512, 2)}
"""By channels: places whose share of a weight's gradient is added up by one program, and its warps. Four warps would do
the same sums four times at 16 channels; at 32 they leave no room for the sums in registers."""


@triton.jit  # type: ignore[untyped-decorator]
def _shifted(  # type: ignore[no-untyped-def]
    x, place, there, row, column, DOWN: tl.constexpr, ACROSS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    C: tl.constexpr
):  # fmt: skip
    """What stands so far below and to the right of every place, zero outside the image."""
    y, z = row + DOWN, column + ACROSS
    inside = (there & (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH))[:, None]
    at = (place + (DOWN * WIDTH + ACROSS))[:, None] * C + tl.arange(0, C)[None, :]
    return tl.load(x + at, mask=inside, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _convolve(  # type: ignore[no-untyped-def]
    x, weight, out, places, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, BACK: tl.constexpr
):  # fmt: skip
    """x (places, C), weight (K, 9, C) -> out (places, K); BACK: x (places, K) -> out (places, C), the adjoint."""
    place = tl.program_id(0) * TILE + tl.arange(0, TILE)
    there, row, column = place < places, place // WIDTH % HEIGHT, place % WIDTH
    c, k = tl.arange(0, C), tl.arange(0, K)
    total = tl.zeros((TILE, C if BACK else K), tl.float32)
    for tap in tl.static_range(9):
        factors = tl.load(weight + k[:, None] * (9 * C) + tap * C + c[None, :])
        if BACK:
            values = _shifted(x, place, there, row, column, 1 - tap // 3, 1 - tap % 3, HEIGHT, WIDTH, K)
            total = tl.dot(values, factors, total)
        else:
            values = _shifted(x, place, there, row, column, tap // 3 - 1, tap % 3 - 1, HEIGHT, WIDTH, C)
            total = tl.dot(values, tl.trans(factors), total)
    width: tl.constexpr = C if BACK else K
    at = place[:, None] * width + tl.arange(0, width)[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=there[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _tap(  # type: ignore[no-untyped-def]
    total, x, come, place, there, row, column, TAP: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    C: tl.constexpr
):  # fmt: skip
    values = _shifted(x, place, there, row, column, TAP // 3 - 1, TAP % 3 - 1, HEIGHT, WIDTH, C)
    return tl.dot(come, values, total)


@triton.jit  # type: ignore[untyped-decorator]
def _to_weight(  # type: ignore[no-untyped-def]
    x, gradient, found, places, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    TILE: tl.constexpr, RANGE: tl.constexpr
):  # fmt: skip
    """x (places, C), gradient (places, K) -> found (ranges, K, 9, C): a program reads its range once for nine taps."""
    c, k = tl.arange(0, C), tl.arange(0, K)
    a = tl.zeros((K, C), tl.float32)
    b, d, e, f, g, h, i, j = a, a, a, a, a, a, a, a
    for start in range(0, RANGE, TILE):
        place = tl.program_id(0) * RANGE + start + tl.arange(0, TILE)
        there, row, column = place < places, place // WIDTH % HEIGHT, place % WIDTH
        come = tl.trans(tl.load(gradient + place[:, None] * K + k[None, :], mask=there[:, None], other=0.0))
        a = _tap(a, x, come, place, there, row, column, 0, HEIGHT, WIDTH, C)
        b = _tap(b, x, come, place, there, row, column, 1, HEIGHT, WIDTH, C)
        d = _tap(d, x, come, place, there, row, column, 2, HEIGHT, WIDTH, C)
        e = _tap(e, x, come, place, there, row, column, 3, HEIGHT, WIDTH, C)
        f = _tap(f, x, come, place, there, row, column, 4, HEIGHT, WIDTH, C)
        g = _tap(g, x, come, place, there, row, column, 5, HEIGHT, WIDTH, C)
        h = _tap(h, x, come, place, there, row, column, 6, HEIGHT, WIDTH, C)
        i = _tap(i, x, come, place, there, row, column, 7, HEIGHT, WIDTH, C)
        j = _tap(j, x, come, place, there, row, column, 8, HEIGHT, WIDTH, C)
    at = found + tl.program_id(0).to(tl.int64) * (K * 9 * C) + k[:, None] * (9 * C) + c[None, :]
    tl.store(at, a)
    tl.store(at + C, b)
    tl.store(at + 2 * C, d)
    tl.store(at + 3 * C, e)
    tl.store(at + 4 * C, f)
    tl.store(at + 5 * C, g)
    tl.store(at + 6 * C, h)
    tl.store(at + 7 * C, i)
    tl.store(at + 8 * C, j)


@triton.jit  # type: ignore[untyped-decorator]
def _sum(found, out, ranges, SIZE: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """found (ranges, SIZE) -> out (SIZE,), added up in order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for number in range(ranges):
        total += tl.load(found + number * SIZE + at)
    tl.store(out + at, total.to(out.dtype.element_ty))


def convolved(x: Tensor, weight: Tensor, back: bool = False) -> Tensor:
    """x (B, C, H, W), weight (K, C, 3, 3), channels last, padded by 1 -> (B, K, H, W); back: the adjoint, K to C."""
    (rows, _, height, width), (after, before) = x.shape, weight.shape[:2]
    out = torch.empty(
        (rows, before if back else after, height, width),
        dtype=x.dtype, device=x.device, memory_format=torch.channels_last,
    )  # fmt: skip
    places = rows * height * width
    sizes = {"HEIGHT": height, "WIDTH": width, "C": before, "K": after, "TILE": TILE, "BACK": back}
    _convolve[(triton.cdiv(places, TILE),)](x, weight, out, places, **sizes, num_warps=4, num_stages=3)
    return out


def to_weight(x: Tensor, gradient: Tensor) -> Tensor:
    """x (B, C, H, W), gradient (B, K, H, W), both channels last -> (K, C, 3, 3), channels last, as x is kept."""
    rows, before, height, width = x.shape
    after, places = gradient.shape[1], rows * height * width
    each, warps = RANGES[max(before, after)]
    ranges, size = triton.cdiv(places, each), 9 * before * after
    found = torch.empty(ranges, size, device=x.device)
    out = torch.empty((after, before, 3, 3), dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    sizes = {"HEIGHT": height, "WIDTH": width, "C": before, "K": after, "TILE": 64, "RANGE": each}
    _to_weight[(ranges,)](x, gradient, found, places, **sizes, num_warps=warps, num_stages=2)
    _sum[(size // 64,)](found, out, ranges, SIZE=size, BLOCK=64, num_warps=2)
    return out


def is_right(device: torch.device, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether all three are torch's in float64, up to rounding, on images that fill no tile and no range."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        found = torch.randn(shape, device=device, generator=generator).to(dtype)
        return found.contiguous(memory_format=torch.channels_last)

    for channels in RANGES:
        x, weight, gradient = (
            drawn(one, channels, *size) for one, *size in ((9, 13, 11), (channels, 3, 3), (9, 13, 11))
        )
        wide = [one.double() for one in (x, weight, gradient)]
        wanted = (
            torch.conv2d(wide[0], wide[1], padding=1),
            conv2d_input(x.shape, wide[1], wide[2], padding=1),  # type: ignore[no-untyped-call]
            conv2d_weight(wide[0], weight.shape, wide[2], padding=1),  # type: ignore[no-untyped-call]
        )
        found = convolved(x, weight), convolved(gradient, weight, back=True), to_weight(x, gradient)
        if any((one - two).norm() > 5e-3 * two.norm() for one, two in zip(found, wanted, strict=True)):
            return False
    return True

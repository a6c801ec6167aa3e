"""Gaussian noise on CUDA in one kernel: drawn from the key of each row, added to its input, cast and laid out.

The numbers are those of philox.py. A draw depends on its key and its place alone, not on its neighbours.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ringfence.noise import philox

BLOCK = 256
"""Counters per program: four numbers each."""


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    out, clean, table, sigma, rows, size, quarter, pixels, channels, LAST: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    slot, key, place = tl.load(table + row), tl.load(table + rows + row), tl.load(table + 2 * rows + row)
    scale = tl.where(place >= 0, sigma, 0.0)  # a row without a place is padding
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    second = tl.zeros([BLOCK], tl.int32) + place.to(tl.int32)
    zero = tl.zeros([BLOCK], tl.int32)
    a, b, c, d = tl.philox(key, i, second, zero, zero)
    for part in tl.static_range(4):
        u, t = (a, b) if part < 2 else (c, d)
        # u on {1..2^31}/2^31: small integers are exact in float32, so that the tail keeps its resolution.
        uniform = ((u >> 1).to(tl.int32).to(tl.float32) + 1.0) * 4.656612873077393e-10
        radius = tl.sqrt(-2.0 * tl.log(uniform))
        angle = t.to(tl.int32, bitcast=True).to(tl.float32) * 1.4629180792671596e-09  # pi / 2^31
        normal = radius * (tl.cos(angle) if part % 2 == 0 else tl.sin(angle))
        number = i + part * quarter
        there = (i < quarter) & (number < size)
        value = tl.load(clean + slot * size + number, mask=there, other=0.0) + scale * normal
        place_in_row = (number % pixels) * channels + number // pixels if LAST else number
        tl.store(out + row * size + place_in_row, value.to(out.dtype.element_ty), mask=there)


def add_noise(out: Tensor, clean: Tensor, table: Tensor, sigma: float) -> None:
    """out[r] = clean[table[0, r]] + the draw of key table[1, r] in place table[2, r]; place -1: no noise.

    out: (B, *shape), contiguous or channels last, of any floating type; clean: (slots, *shape) float32, contiguous;
    table: (3, B) int64, contiguous.
    """
    size = clean[0].numel()
    last = out.dim() == 4 and not out.is_contiguous()
    channels = out.shape[1] if last else 1
    quarter = triton.cdiv(size, 4)
    grid = (len(out), triton.cdiv(quarter, BLOCK))
    _draw[grid](out, clean, table, sigma, len(out), size, quarter, size // channels, channels, LAST=last, BLOCK=BLOCK)


def is_right(device: torch.device) -> bool:
    """Whether a few draws on this device are what philox.py says, to float32's accuracy."""
    keys, places, size = [1, (1 << 63) - 1], [0, 99], 1003
    table = torch.tensor([[0, 0], keys, places], device=device)
    out = torch.empty(2, size, device=device)
    add_noise(out, torch.zeros(1, size, device=device), table, 1.0)
    wanted = torch.stack([torch.from_numpy(philox.normals(*one, size)) for one in zip(keys, places, strict=True)])
    return bool((out.cpu() - wanted).abs().max() < 1e-4)

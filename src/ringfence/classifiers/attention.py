"""Attention to as many keys as a multiprocessor of Hopper holds at once (``attention_kernel.py``), as an operator.

Elsewhere, and where the kernel is not right, it is torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ringfence.noise.checked import checked_kernel

KERNEL = "ringfence.classifiers.attention_kernel"
HEAD, SCALE, KEYS = 64, 0.125, (193, 208)
"""Numbers of a head, by whose root scores are divided, and of keys the fewest and most."""
MULTIPLE = 8
"""Numbers in 16 bytes, of which TMA wants whole ones from row to row."""
ADDRESSES = 2**31
"""Heads of a batch that the kernel can tell apart."""


def fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel is for these."""
    half = all(one.dtype == torch.bfloat16 for one in (query, key, value))
    shape = query.shape
    same = half and query.dim() == 4 and shape == key.shape == value.shape
    return same and shape[3] == HEAD and KEYS[0] <= shape[2] <= KEYS[1] and 0 < shape[0] * shape[1] < ADDRESSES


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    kernel = checked_kernel(KERNEL, query.device)
    if kernel is None or not fits(query, key, value):
        return scaled_dot_product_attention(query, key, value).transpose(1, 2).contiguous().transpose(1, 2)
    given = (one if _readable(one) else one.clone(memory_format=torch.contiguous_format) for one in (query, key, value))
    found: Tensor = kernel.attention(*given)
    return found


def _readable(one: Tensor) -> bool:
    """Whether TMA reads it as it lies."""
    steps = one.stride()
    return one.data_ptr() % 16 == 0 and steps[-1] == 1 and all(step > 0 and step % MULTIPLE == 0 for step in steps[:-1])


def _shape_of_answer(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    images, heads, rows, _ = query.shape
    return query.new_empty((images, rows, heads, value.shape[-1])).transpose(1, 2)


# Not by custom_op, whose first call loads torch's compiler.
_LIBRARY: Any = torch.library.Library("ringfence", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("attention(Tensor query, Tensor key, Tensor value) -> Tensor")
_LIBRARY.impl("attention", _attention, "CompositeExplicitAutograd")
_LIBRARY.impl("attention", _shape_of_answer, "Meta")

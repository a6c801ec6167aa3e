"""Operators whose kernels are for Hopper (``hopper_kernels.py``): a linear layer with its GELU, attention to few keys.

Elsewhere, and where a kernel is not right, they are torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from ringfence.noise.checked import checked_kernel

KERNELS = "ringfence.classifiers.hopper_kernels"
MULTIPLE = 8
"""Numbers in 16 bytes, of which TMA wants whole ones from row to row."""
ADDRESSES = 2**31
"""Rows, columns and images that the kernels can tell apart."""
HEAD, SCALE, KEYS = 64, 0.125, (193, 208)
"""Numbers of a head, by whose root scores are divided, and of keys the fewest and most."""


def fits_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether the kernel is for these."""
    sizes = (*weight.shape, x.numel() // max(1, x.shape[-1]))
    shaped = weight.dim() == 2 and bias.dim() == 1 and x.dim() > 1 and 0 < min(sizes) <= max(sizes) < ADDRESSES
    return _half(x, weight, bias) and shaped and all(size % MULTIPLE == 0 for size in weight.shape)


def fits_attention(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the kernel is for these."""
    shape = query.shape
    same = query.dim() == 4 and shape == key.shape == value.shape and _half(query, key, value)
    return same and shape[3] == HEAD and KEYS[0] <= shape[2] <= KEYS[1] and 0 < shape[0] * shape[1] < ADDRESSES


def _half(*tensors: Tensor) -> bool:
    return all(one.dtype == torch.bfloat16 for one in tensors)


def _linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    kernel = checked_kernel(KERNELS, x.device, "linear_gelu")
    if kernel is None or not fits_linear_gelu(x, weight, bias):
        return gelu(linear(x, weight, bias)).contiguous()
    rows = x.reshape(-1, x.shape[-1])
    found: Tensor = kernel.linear_gelu(*(_whole(one) for one in (rows, weight, bias)))
    return found.view(*x.shape[:-1], len(weight))


def _attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    kernel = checked_kernel(KERNELS, query.device, "attention")
    if kernel is None or not fits_attention(query, key, value):
        return scaled_dot_product_attention(query, key, value).transpose(1, 2).contiguous().transpose(1, 2)
    given = (one if _readable(one) else _whole(one) for one in (query, key, value))
    found: Tensor = kernel.attention(*given)
    return found


def _whole(one: Tensor) -> Tensor:
    """Without gaps, and from where the kernels can read."""
    return one.contiguous() if one.data_ptr() % 16 == 0 else one.clone(memory_format=torch.contiguous_format)


def _readable(one: Tensor) -> bool:
    """Whether TMA reads it as it lies."""
    steps = one.stride()
    return one.data_ptr() % 16 == 0 and steps[-1] == 1 and all(step > 0 and step % MULTIPLE == 0 for step in steps[:-1])


def _shape_of_linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], len(weight)))


def _shape_of_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    images, heads, rows, _ = query.shape
    return query.new_empty((images, rows, heads, value.shape[-1])).transpose(1, 2)


# Not by custom_op, whose first call loads torch's compiler.
_LIBRARY: Any = torch.library.Library("ringfence", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("linear_gelu(Tensor x, Tensor weight, Tensor bias) -> Tensor")
_LIBRARY.impl("linear_gelu", _linear_gelu, "CompositeExplicitAutograd")
_LIBRARY.impl("linear_gelu", _shape_of_linear_gelu, "Meta")
_LIBRARY.define("attention(Tensor query, Tensor key, Tensor value) -> Tensor")
_LIBRARY.impl("attention", _attention, "CompositeExplicitAutograd")
_LIBRARY.impl("attention", _shape_of_attention, "Meta")

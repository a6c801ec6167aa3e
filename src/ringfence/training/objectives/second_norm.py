"""Batch norm on batch statistics whose input gradient can be differentiated again in two passes over memory.

torch takes the second derivative apart into some thirty sums over whole activations for every batch norm. With
z = (x - mean) / deviation over each channel and P v = v - mean(v) - z mean(z v), which is symmetric, the input gradient
is weight / deviation * P g, and a product <u, weight / deviation * P g> needs five means for all its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm


@final
@dataclass(frozen=True)
class NormPlace:
    """Where a network normalises x (B, C, *): running statistics, which a forward moves on, and the small number.

    weights_wanted: asked at each backward, whether weight and bias need gradients, too.
    """

    running: tuple[Tensor | None, Tensor | None]
    momentum: float
    eps: float
    weights_wanted: Callable[[], bool]

    def normed(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """As ``torch.nn.functional.batch_norm`` in training."""
        found: Tensor = _Norm.apply(x, weight, bias, self)  # type: ignore[no-untyped-call]
        return found


class _Norm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, place: NormPlace) -> Tensor:
        out, mean, inverse = torch.native_batch_norm(x, weight, bias, *place.running, True, place.momentum, place.eps)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.place = place
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x, weight, mean, inverse), place = ctx.saved_tensors, ctx.place
        wanted = place.weights_wanted()
        if not torch.is_grad_enabled():
            mask = [ctx.needs_input_grad[0], wanted, wanted]
            found = _first(g, x, weight, mean, inverse, place.eps, mask)
            return *(one if asked else None for one, asked in zip(found, mask, strict=True)), None
        of_x = _Back.apply(g, x, weight, mean, inverse, place)  # type: ignore[no-untyped-call]
        if not wanted:
            return of_x, None, None, None
        every = [0, *range(2, x.dim())]
        z = batch_norm(x, None, None, training=True, eps=place.eps)
        return of_x, (g * z).sum(every).to(weight.dtype), g.sum(every).to(weight.dtype), None


class _Back(Function):
    """The input gradient, given the statistics; what it depends on x by through them is in its derivative."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor, place: NormPlace
    ) -> Tensor:
        ctx.save_for_backward(g, x, weight, mean, inverse)
        ctx.place = place
        return _first(g, x, weight, mean, inverse, place.eps, [True, False, False])[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, u: Tensor) -> Any:
        return *second_derivatives(u, *ctx.saved_tensors), None, None, None


def _first(
    g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor, eps: float, mask: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, weight and bias, those that the mask asks for."""
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
        g.contiguous(memory_format=_layout(x)), x, weight, None, None, mean, inverse, True, eps, mask
    )
    return found


def _layout(x: Tensor) -> torch.memory_format:
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def second_derivatives(
    u: Tensor, g: Tensor, x: Tensor, weight: Tensor, mean: Tensor, inverse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Of <u, input gradient at g> with respect to g, x and weight; mean and inverse (C,): of x and of its deviation."""
    every, channels = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
    centre, scale, gain = (one.to(mean.dtype).view(channels) for one in (mean, inverse, weight))
    down, up = u.to(mean.dtype), g.to(mean.dtype)
    z = (x.to(mean.dtype) - centre) * scale
    mean_u, mean_g, along_u, along_g, both = (
        one.mean(every, keepdim=True) for one in (down, up, down * z, up * z, down * up)
    )
    left = both - mean_u * mean_g - along_u * along_g
    of_u, of_g = down - mean_u - z * along_u, up - mean_g - z * along_g
    for_x = -gain * scale * scale * (z * left + along_g * of_u + along_u * of_g)
    for_weight = (x.numel() // x.shape[1]) * (scale * left).view(-1)
    return (gain * scale * of_u).to(g.dtype), for_x.to(x.dtype), for_weight.to(weight.dtype)

"""Batch norm that may be differentiated twice, by a formula instead of torch's many small steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ringfence.training.objectives.twice_convolution import Wanted


@final
@dataclass(frozen=True)
class Norm:
    """A batch norm in training: y = weight xh + bias, xh = (x - mean) s, s = (variance + eps)^(-1/2), per channel.

    x, g, u: (B, C, *places); g is a gradient of y, u one of the gradient of x. Sums and means are over all but C.
    """

    mode: Wanted
    running: tuple[Tensor | None, Tensor | None]
    momentum: float
    eps: float

    def __call__(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """y, with the running statistics moved on."""
        found: Tensor = _Normalised.apply(x, weight, bias, self)  # type: ignore[no-untyped-call]
        return found


class _Normalised(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, norm: Norm) -> Tensor:
        y, mean, s = torch.native_batch_norm(x, weight, bias, *norm.running, True, norm.momentum, norm.eps)
        ctx.save_for_backward(x, weight, mean, s)
        ctx.norm = norm
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, weight, mean, s = ctx.saved_tensors
        wanted = [one and ctx.norm.mode.weights_wanted for one in ctx.needs_input_grad[1:3]]
        if torch.is_grad_enabled():  # a gradient that will be differentiated: of the input alone
            assert not any(wanted)
            return _ToInput.apply(g, x, weight, mean, s, ctx.norm.eps), None, None, None  # type: ignore[no-untyped-call]
        return *_backward(g, x, weight, mean, s, ctx.norm.eps, [ctx.needs_input_grad[0], *wanted]), None


def _backward(
    g: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, s: Tensor, eps: float, wanted: list[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of <g, y> with respect to x, weight and bias."""
    run: Any = torch.ops.aten.native_batch_norm_backward
    found = run(g, x, weight, None, None, mean, s, True, eps, wanted)
    return tuple(one if asked else None for one, asked in zip(found, wanted, strict=True))


class _ToInput(Function):
    """weight s P g with P g = g - mean(g) - xh mean(g xh), the gradient of <g, y> with respect to x."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, s: Tensor, eps: float
    ) -> Tensor | None:
        ctx.save_for_backward(g, x, weight, mean, s)
        return _backward(g, x, weight, mean, s, eps, [True, False, False])[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, u: Tensor) -> Any:
        """With a = <u, P g>, p = <g, xh>, q = <u, xh> and M places a channel:

        for g: weight s P u;  for weight: s a;  for x: -(weight s^2 / M) (a xh + p P u + q P g).
        """
        g, x, weight, mean, s = ctx.saved_tensors
        every = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        count = x.numel() // x.shape[1]
        # At least in float32, whatever the network runs in: these are sums over whole batches.
        narrow, wide = g.dtype, torch.promote_types(x.dtype, torch.float32)
        g, u, mean, s = g.to(wide), u.to(wide), mean.to(wide).view(shape), s.to(wide).view(shape)
        xh = (x - mean) * s
        p, q = ((one * xh).sum(every, keepdim=True) for one in (g, u))
        mean_g, mean_u = (one.mean(every, keepdim=True) for one in (g, u))
        a = (u * g).sum(every, keepdim=True) - count * mean_u * mean_g - p * q / count
        scale = s if weight is None else weight.view(shape) * s
        projected = u - mean_u - xh * (q / count)
        for_x = projected * p + (g - mean_g) * q + xh * (a - p * q / count)
        for_weight = None if weight is None else (s * a).flatten().to(weight.dtype)
        return (projected * scale).to(narrow), (for_x * (-scale * s / count)).to(x.dtype), for_weight, None, None, None

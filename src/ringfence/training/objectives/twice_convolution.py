"""A convolution and its two adjoints, each the derivative of the others: second derivatives by ordinary kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.grad import conv2d_input, conv2d_weight


class Wanted(Protocol):
    """Who knows whether gradients of weights are wanted just now."""

    weights_wanted: bool


@final
@dataclass(frozen=True)
class Place:
    """Where a network convolves: shapes of input x (B, C, H, W) and weight w (D, C, h, w), stride and the like.

    g (B, D, H', W') is a gradient of the output. Each of the three maps is linear in both of its arguments.
    """

    mode: Wanted
    x: torch.Size
    weight: torch.Size
    how: tuple[Any, ...]

    def convolution(self, x: Tensor, weight: Tensor) -> Tensor:
        """x * w."""
        found: Tensor = _Convolution.apply(x, weight, self)  # type: ignore[no-untyped-call]
        return found

    def to_input(self, g: Tensor, weight: Tensor) -> Tensor:
        """The gradient of <g, x * w> with respect to x."""
        found: Tensor = _ToInput.apply(g, weight, self)  # type: ignore[no-untyped-call]
        return found

    def to_weight(self, x: Tensor, g: Tensor) -> Tensor:
        """The gradient of <g, x * w> with respect to w."""
        found: Tensor = _ToWeight.apply(x, g, self)  # type: ignore[no-untyped-call]
        return found


class _Bilinear(Function):
    """Remembers both arguments and the place."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        a, b, ctx.place = inputs
        ctx.save_for_backward(a, b)


class _Convolution(_Bilinear):
    @staticmethod
    def forward(x: Tensor, weight: Tensor, place: Place) -> Tensor:
        return torch.conv2d(x, weight, None, *place.how)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x, weight), (for_x, for_weight, _) = ctx.saved_tensors, ctx.needs_input_grad
        for_weight = for_weight and ctx.place.mode.weights_wanted
        of_x = ctx.place.to_input(g, weight) if for_x else None
        return of_x, ctx.place.to_weight(x, g) if for_weight else None, None


class _ToInput(_Bilinear):
    @staticmethod
    def forward(g: Tensor, weight: Tensor, place: Place) -> Tensor:
        found: Tensor = conv2d_input(place.x, weight, g, *place.how)  # type: ignore[no-untyped-call]
        return found

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        (g, weight), (for_g, for_weight, _) = ctx.saved_tensors, ctx.needs_input_grad
        of_g = ctx.place.convolution(u, weight) if for_g else None
        return of_g, ctx.place.to_weight(u, g) if for_weight else None, None


class _ToWeight(_Bilinear):
    @staticmethod
    def forward(x: Tensor, g: Tensor, place: Place) -> Tensor:
        found: Tensor = conv2d_weight(x, place.weight, g, *place.how)  # type: ignore[no-untyped-call]
        return found

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        (x, g), (for_x, for_g, _) = ctx.saved_tensors, ctx.needs_input_grad
        of_x = ctx.place.to_input(g, u) if for_x else None
        return of_x, ctx.place.convolution(x, u) if for_g else None, None

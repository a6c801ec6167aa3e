"""Gradients with respect to inputs that can be differentiated again, quickly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import batch_norm, conv_transpose2d
from torch.nn.grad import conv2d_weight
from torch.nn.modules.utils import _pair
from torch.overrides import TorchFunctionMode

from ringfence.training.objectives.second_norm import NormPlace


@final
class SecondOrder(TorchFunctionMode):
    """``with SecondOrder() as second:`` a network runs, whose ``second.gradient`` may then be part of a loss.

    A convolution is bilinear in input and weight; it and its two adjoints are each other's derivatives. torch knows
    that for the first derivative only: for the second it runs a convolution whose kernel is as large as the image.
    On a CPU that is fast, and torch's own is used unless ``everywhere``. Batch norms are differentiated in fewer
    passes, too (``second_norm.py``).
    """

    def __init__(self, everywhere: bool = False) -> None:
        super().__init__()
        self.everywhere, self.weights_wanted = everywhere, True
        self._ours = {torch.conv2d: self._convolved, batch_norm: self._normed}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._ours and args and (self.everywhere or args[0].is_cuda):
            func = self._ours[func]
        return func(*args, **(kwargs or {}))

    def gradient(self, total: Tensor, inputs: Tensor) -> Tensor:
        """Of a total (0-dimensional) with respect to inputs (B, *shape), with a graph of its own."""
        # torch tells a Function which of its inputs have gradients at all, not which of them were asked for.
        self.weights_wanted = False
        try:
            return torch.autograd.grad(total, inputs, create_graph=True)[0]
        finally:
            self.weights_wanted = True

    def _convolved(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        how = (stride, padding, dilation, groups)
        if isinstance(padding, str):
            return torch.conv2d(x, weight, bias, *how)
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        found = _Place(self, x.shape, weight.shape, how).convolution(x, weight)
        return found if bias is None else found + bias.view(-1, 1, 1)

    def _normed(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        if not training or weight is None or bias is None:
            return batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps)
        running = running_mean, running_var
        return NormPlace(running, momentum, eps, lambda: self.weights_wanted).normed(x, weight, bias)


@final
@dataclass(frozen=True)
class _Place:
    """Where a network convolves: shapes of input x (B, C, H, W) and weight w (D, C, h, w), stride and the like.

    g (B, D, H', W') is a gradient of the output. Each of the three maps is linear in both of its arguments.
    """

    mode: SecondOrder
    x: torch.Size
    weight: torch.Size
    how: tuple[Any, ...]

    @property
    def transposed(self) -> tuple[Any, ...]:
        """How its adjoint is a transposed convolution. (torch's gradient wants an x, if only to copy it.)"""
        stride, padding, dilation = map(_pair, self.how[:3])
        sides = zip(self.x[2:], self.weight[2:], stride, padding, dilation, strict=True)
        left = [(side + 2 * around - apart * (taps - 1) - 1) % step for side, taps, step, around, apart in sides]
        return stride, padding, left, self.how[3], dilation

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
    def forward(x: Tensor, weight: Tensor, place: _Place) -> Tensor:
        return torch.conv2d(x, weight, None, *place.how)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x, weight), (for_x, for_weight, _) = ctx.saved_tensors, ctx.needs_input_grad
        for_weight = for_weight and ctx.place.mode.weights_wanted
        of_x = ctx.place.to_input(g, weight) if for_x else None
        return of_x, ctx.place.to_weight(x, g) if for_weight else None, None


class _ToInput(_Bilinear):
    @staticmethod
    def forward(g: Tensor, weight: Tensor, place: _Place) -> Tensor:
        return conv_transpose2d(g, weight, None, *place.transposed)

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        (g, weight), (for_g, for_weight, _) = ctx.saved_tensors, ctx.needs_input_grad
        of_g = ctx.place.convolution(u, weight) if for_g else None
        return of_g, ctx.place.to_weight(u, g) if for_weight else None, None


class _ToWeight(_Bilinear):
    @staticmethod
    def forward(x: Tensor, g: Tensor, place: _Place) -> Tensor:
        found: Tensor = conv2d_weight(x, place.weight, g, *place.how)  # type: ignore[no-untyped-call]
        return found

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> Any:
        (x, g), (for_x, for_g, _) = ctx.saved_tensors, ctx.needs_input_grad
        of_x = ctx.place.to_input(g, u) if for_x else None
        return of_x, ctx.place.convolution(x, u) if for_g else None, None

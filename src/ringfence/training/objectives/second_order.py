"""Gradients with respect to inputs that can be differentiated again, quickly."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ringfence.training.objectives.twice_convolution import Place


@final
class SecondOrder(TorchFunctionMode):
    """``with SecondOrder() as second:`` a network runs, whose ``second.gradient`` may then be part of a loss.

    A convolution is bilinear in input and weight; it and its two adjoints are each other's derivatives. torch knows
    that for the first derivative only: for the second it runs a convolution whose kernel is as large as the image.
    On a CPU that is fast, and torch's own is used unless ``everywhere``.
    """

    def __init__(self, everywhere: bool = False) -> None:
        super().__init__()
        self.everywhere, self.weights_wanted = everywhere, True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d and args and (self.everywhere or args[0].is_cuda):
            func = self._convolved
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
        found = Place(self, x.shape, weight.shape, how).convolution(x, weight)
        return found if bias is None else found + bias.view(-1, 1, 1)

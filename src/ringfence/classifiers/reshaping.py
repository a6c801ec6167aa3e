"""Layers in the shape that GPUs multiply well: the same sums, elsewhere rounded.

What cuts an image into patches, as vision transformers begin, is a product, for which cuDNN takes ten times as long;
three channels leave most of a tensor core idle. Another form of the network, checked as all are.
"""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn
from torch.nn.functional import linear, pad

from ringfence.classifiers.base import Composed, runs_its_code_alone, with_networks

FEW = 4
"""Channels of an input for which cuDNN pads: four times as many are a multiple of its sixteen, or nearly."""


class _Form(nn.Conv2d):
    """Whoever asks the layer what it is, or for its weights or its stride, is answered as before."""

    def __init__(self, of: nn.Conv2d) -> None:
        how: dict[str, Any] = {"padding": of.padding, "device": "meta"}  # where nothing is drawn
        super().__init__(of.in_channels, of.out_channels, of.kernel_size, of.stride, bias=False, **how)  # type: ignore[arg-type]
        self.weight, self.bias = of.weight, of.bias


@final
class Cut(_Form):
    """A convolution whose patches lie side by side, as a product of matrices."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, K, H / h, W / w); what is left at the edges is not read."""
        high, wide = self.weight.shape[2:]
        down, across = x.shape[2] // high, x.shape[3] // wide
        cut = x[:, :, : down * high, : across * wide].reshape(x.shape[0], -1, down, high, across, wide)
        rows = cut.permute(0, 2, 4, 1, 3, 5).reshape(x.shape[0], down * across, -1)
        return linear(rows, self.weight.flatten(1), self.bias).transpose(1, 2).reshape(x.shape[0], -1, down, across)


@final
class Halved(_Form):
    """A convolution of stride 2 and few channels as one of stride 1: two by two pixels are the channels of one.

    y[o] = sum_t w[t] x[2 o + t - p] reads, counted from an even place, 2 o + u with u = t + p % 2: pixel u % 2 of pair
    o + u // 2. The same products, and zeros for a u that is no tap, and in channels up to a multiple of eight.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__(convolution)
        weight, outputs = convolution.weight.detach(), convolution.out_channels
        self.before = tuple(int(one) for one in convolution.padding)
        up, left = (before % 2 for before in self.before)
        high, wide = self.taps = (self.kernel_size[0] + up + 1) // 2, (self.kernel_size[1] + left + 1) // 2
        every = pad(weight, (left, 2 * wide - self.kernel_size[1] - left, up, 2 * high - self.kernel_size[0] - up))
        parts = every.reshape(outputs, -1, high, 2, wide, 2).permute(0, 3, 5, 1, 2, 4)
        self.spare = -4 * weight.shape[1] % 8
        self.convolution = nn.Conv2d(4 * weight.shape[1] + self.spare, outputs, self.taps, bias=False, device="meta")
        filled = pad(parts.reshape(outputs, -1, high, wide), (0, 0, 0, 0, 0, self.spare))
        self.convolution.weight, self.convolution.bias = nn.Parameter(filled), convolution.bias

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, K, H', W')."""
        high, wide = (self._pairs(x.shape[2 + axis], axis) for axis in (0, 1))
        up, left = (before + before % 2 for before in self.before)
        whole = pad(x, (left, 2 * wide - left - x.shape[3], up, 2 * high - up - x.shape[2]))
        parts = whole.reshape(x.shape[0], x.shape[1], high, 2, wide, 2).permute(0, 2, 4, 3, 5, 1)
        pairs = pad(parts.reshape(x.shape[0], high, wide, 4 * x.shape[1]), (0, self.spare))
        found: Tensor = self.convolution(pairs.permute(0, 3, 1, 2))
        return found

    def _pairs(self, pixels: int, axis: int) -> int:
        """As many as all outputs read."""
        outputs = (pixels + 2 * self.before[axis] - self.kernel_size[axis]) // 2 + 1
        return outputs + self.taps[axis] - 1


def reshaped(module: nn.Module) -> nn.Module:
    """A copy in which convolutions that cut their input into patches are products, and others of few channels wider."""

    def changed(part: nn.Module) -> nn.Module | None:
        if isinstance(part, Composed | nn.ModuleList) or not runs_its_code_alone(part):
            return None
        for name, child in list(part.named_modules()):
            if type(child) is nn.Conv2d and name and (form := _form_of(child)):
                part.set_submodule(name, form(child))
        return part

    return with_networks(module, changed)


def _form_of(one: nn.Conv2d) -> type[Cut] | type[Halved] | None:
    if isinstance(one.padding, str) or one.padding_mode != "zeros" or set(one.dilation) != {1} or one.groups != 1:
        return None
    if one.kernel_size == one.stride and min(one.kernel_size) > 1 and set(one.padding) == {0}:
        return Cut
    return Halved if one.stride == (2, 2) and one.in_channels <= FEW and min(one.kernel_size) > 2 else None

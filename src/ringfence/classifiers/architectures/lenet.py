"""LeNet-5, the small network of the embedded default, and the wider one of the MNIST experiments in this field."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d, pad, pixel_unshuffle, relu

from ringfence.classifiers.base import runs_its_code_alone


class LeNet(nn.Module):
    """LeNet-5 with rectified units and max pooling: (B, 1, 28, 28) -> scores (B, num_classes).

    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998.
    61,706 parameters at ten classes. channels, padding: of the two convolutions, the first of which alone is padded;
    hidden: sizes of the layers between them and the scores.
    """

    def __init__(
        self,
        num_classes: int = 10,
        channels: tuple[int, int] = (6, 16),
        padding: int = 2,
        hidden: Sequence[int] = (120, 84),
    ) -> None:
        super().__init__()
        first, second = channels
        self.features = nn.Sequential(
            nn.Conv2d(1, first, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        side = ((28 + 2 * padding - 4) // 2 - 4) // 2
        sizes = (second * side * side, *hidden)
        layers = [part for size, wide in pairwise(sizes) for part in (nn.Linear(size, wide), nn.ReLU())]
        self.head = nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], num_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of images (B, 1, 28, 28)."""
        features = self.in_blocks(x) if torch.compiler.is_compiling() and self._as_built() else self.features(x)
        scores: Tensor = self.head(features)
        return scores

    def _as_built(self) -> bool:
        """Whether the features are what they were at first: a user may have replaced layers, or put hooks on them."""
        usual = [type(one) for one in self.features] == [nn.Conv2d, nn.ReLU, nn.MaxPool2d] * 2
        return usual and runs_its_code_alone(self.features) and all(map(_is_usual, self.features))

    def in_blocks(self, x: Tensor) -> Tensor:
        """The same features, faster where compiled: few channels leave most of a GPU idle, one channel a CPU.

        Not for objectives that differentiate gradients, which are slower this way; they run uncompiled.
        """
        for layer in (self.features[0], self.features[3]):
            assert isinstance(layer, nn.Conv2d)
            x = ONE_LAYER(x, layer.weight, layer.bias, int(layer.padding[0]))
        return x


def wide_lenet(num_classes: int = 10) -> LeNet:
    """The LeNet of Jeong and Shin's public code (2020): 20 and 50 channels, 500 units; 431,080 parameters."""
    return LeNet(num_classes, channels=(20, 50), padding=0, hidden=(500,))


def _is_usual(layer: Any) -> bool:
    """Whether its settings are those that ``convolve_and_pool`` is for."""
    if isinstance(layer, nn.Conv2d):
        square = layer.kernel_size[0] == layer.kernel_size[1] and layer.padding[0] == layer.padding[1]
        apart = (*layer.stride, *layer.dilation, layer.groups)
        return square and apart == (1,) * 5 and layer.padding_mode == "zeros"
    if isinstance(layer, nn.MaxPool2d):
        windows = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        return windows == (2, 2, 0, 1) and not layer.ceil_mode and not layer.return_indices
    return True


def convolve_and_pool(x: Tensor, weight: Tensor, bias: Tensor | None, edge: int) -> Tensor:
    """MaxPool2d(2)(ReLU(conv(x))): (B, C, H, W) -> (B, K, H'/2, W'/2), for kernels of odd size, padded by edge.

    In blocks, but of several channels on a CPU: from 20 to 50 of them, in bf16, that is twice as fast without.
    """
    if x.is_cuda or weight.shape[1] == 1:
        return pooled_by_blocks(x, weight, bias, edge)
    return max_pool2d(relu(conv2d(x, weight, bias, padding=edge)), 2)


def pooled_by_blocks(x: Tensor, weight: Tensor, bias: Tensor | None, edge: int) -> Tensor:
    """The same as one convolution.

    The 2x2 outputs of a pooling window see (k+1)x(k+1) inputs. With blocks of 2x2 inputs as channels that is one
    convolution from 4C to 4K channels over a quarter of the positions, and pooling is a maximum over channels.
    """
    outputs, inputs, size = weight.shape[:3]
    # One kernel per position within the window, shifted by one row, one column or both: (4, K, C, k+1, k+1).
    shifted = torch.stack([pad(weight, (a, 1 - a, b, 1 - b)) for b in (0, 1) for a in (0, 1)])
    kernel = pixel_unshuffle(shifted.flatten(0, 1), 2)  # (4K, 4C, (k+1)/2, (k+1)/2)
    blocks = pixel_unshuffle(pad(x, (edge, edge, edge, edge)) if edge else x, 2)
    assert kernel.shape == (4 * outputs, 4 * inputs, (size + 1) // 2, (size + 1) // 2)
    windows = conv2d(blocks, kernel)
    windows = windows.view(-1, 4, outputs, *windows.shape[2:])
    pooled = windows.max(1).values
    return relu(pooled if bias is None else pooled + bias.view(-1, 1, 1))


# An operator that compilers take apart, so that whoever has a kernel for such layers finds them before (pooling.py).
# Other formulas need other names: compilers keep their code by them.
_LIBRARY: Any = torch.library.Library("ringfence", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("convolve_and_pool(Tensor x, Tensor weight, Tensor? bias, int edge) -> Tensor")
_LIBRARY.impl("convolve_and_pool", convolve_and_pool, "CompositeImplicitAutograd")
_LIBRARY.impl("convolve_and_pool", convolve_and_pool, "FuncTorchBatchedDecomposition")  # else one member at a time
ONE_LAYER: Any = torch.ops.ringfence.convolve_and_pool

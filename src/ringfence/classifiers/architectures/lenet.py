"""LeNet-5, the small network of the embedded default."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, pixel_unshuffle, relu


class LeNet(nn.Module):
    """LeNet-5 with rectified units and max pooling: (B, 1, 28, 28) -> scores (B, num_classes).

    LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998.
    61,706 parameters at ten classes.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, num_classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of images (B, 1, 28, 28)."""
        features = self.in_blocks(x) if torch.compiler.is_compiling() else self.features(x)
        scores: Tensor = self.head(features)
        return scores

    def in_blocks(self, x: Tensor) -> Tensor:
        """The same features (B, 16, 5, 5), faster where compiled: few channels leave most of a GPU idle.

        Not for objectives that differentiate gradients, which are slower this way; they run uncompiled.
        """
        first, second = self.features[0], self.features[3]
        assert isinstance(first, nn.Conv2d)
        assert isinstance(second, nn.Conv2d)
        return convolve_and_pool(convolve_and_pool(x, first), second)


def convolve_and_pool(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """MaxPool2d(2)(ReLU(conv(x))): (B, C, H, W) -> (B, K, H'/2, W'/2), for kernels of odd size.

    The 2x2 outputs of a pooling window see (k+1)x(k+1) inputs. With blocks of 2x2 inputs as channels that is one
    convolution from 4C to 4K channels over a quarter of the positions, and pooling is a maximum over channels.
    """
    size, edge = conv.kernel_size[0], int(conv.padding[0])
    outputs, inputs = conv.weight.shape[:2]
    # One kernel per position within the window, shifted by one row, one column or both: (4, K, C, k+1, k+1).
    shifted = torch.stack([pad(conv.weight, (a, 1 - a, b, 1 - b)) for b in (0, 1) for a in (0, 1)])
    kernel = pixel_unshuffle(shifted.flatten(0, 1), 2)  # (4K, 4C, (k+1)/2, (k+1)/2)
    blocks = pixel_unshuffle(pad(x, (edge, edge, edge, edge)) if edge else x, 2)
    assert kernel.shape == (4 * outputs, 4 * inputs, (size + 1) // 2, (size + 1) // 2)
    windows = conv2d(blocks, kernel)
    windows = windows.view(-1, 4, outputs, *windows.shape[2:])
    pooled = windows.max(1).values
    return relu(pooled if conv.bias is None else pooled + conv.bias.view(-1, 1, 1))

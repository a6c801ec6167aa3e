"""Denoisers: DnCNN, the residual one of denoised smoothing (Zhang et al. 2017; used by Salman et al. 2020).

And published ones without batch norm: CDnCNN and FDnCNN (Zhang et al. 2017), FFDNet (Zhang et al. 2018).
Pixels lie in [0, 1] and the noise on them is not clipped. FDnCNN and FFDNet are told the noise level, as one more
channel of the constant sigma; their weights serve sigma up to 75/255.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, pixel_shuffle, pixel_unshuffle


class DnCNN(nn.Module):
    """x - net(x): (B, channels, H, W) -> the same shape, without its noise.

    depth convolutions of 3 x 3 with ``width`` channels between, batch norm in the middle ones; the network
    estimates the noise. Depth 17 and width 64 are the published sizes. eps: of its batch norms; bias: of its last
    convolution.
    """

    def __init__(
        self, channels: int = 1, depth: int = 17, width: int = 64, eps: float = 1e-5, bias: bool = True
    ) -> None:
        super().__init__()
        if depth < 3:
            raise ValueError(f"depth must be at least 3, got {depth}")
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width, eps), nn.ReLU()]
        layers.append(nn.Conv2d(width, channels, 3, padding=1, bias=bias))
        self.estimate = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """The cleaned batch (B, channels, H, W)."""
        cleaned: Tensor = x - self.estimate(x)
        return cleaned


@final
class CDnCNN(nn.Module):
    """x - model(x): (B, channels, H, W) -> the same shape; trained for a narrow range of noise levels."""

    def __init__(self, channels: int = 3, depth: int = 20, width: int = 64) -> None:
        super().__init__()
        self.model = _convolutions(channels, width, channels, depth)

    def forward(self, x: Tensor) -> Tensor:
        """The cleaned batch (B, channels, H, W)."""
        cleaned: Tensor = x - self.model(x)
        return cleaned


@final
class FDnCNN(nn.Module):
    """model([x, sigma]): (B, channels, H, W) -> the same shape."""

    def __init__(self, sigma: float, channels: int = 3, depth: int = 20, width: int = 64) -> None:
        super().__init__()
        self.sigma = sigma
        self.model = _convolutions(channels + 1, width, channels, depth)

    def forward(self, x: Tensor) -> Tensor:
        """The cleaned batch (B, channels, H, W)."""
        cleaned: Tensor = self.model(_with_sigma(x, self.sigma))
        return cleaned


@final
class FFDNet(nn.Module):
    """shuffle(model([unshuffle(x), sigma])): (B, channels, H, W) -> the same shape.

    Each 2 x 2 square of pixels becomes channels of one place, so that the network runs at half the size; odd
    sides are made even by repeating the last row or column, which is cut off again.
    """

    def __init__(self, sigma: float, channels: int = 3, depth: int = 12, width: int = 96) -> None:
        super().__init__()
        self.sigma = sigma
        self.model = _convolutions(4 * channels + 1, width, 4 * channels, depth)

    def forward(self, x: Tensor) -> Tensor:
        """The cleaned batch (B, channels, H, W)."""
        height, width = x.shape[-2:]
        even = pad(x, (0, width % 2, 0, height % 2), mode="replicate") if height % 2 or width % 2 else x
        cleaned = pixel_shuffle(self.model(_with_sigma(pixel_unshuffle(even, 2), self.sigma)), 2)
        return cleaned[..., :height, :width]


def _convolutions(inside: int, width: int, outside: int, depth: int) -> nn.Sequential:
    """depth convolutions of 3 x 3 with rectified units between: keys 0, 2, 4, ..."""
    layers: list[nn.Module] = [nn.Conv2d(inside, width, 3, padding=1)]
    for _ in range(depth - 2):
        layers += [nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(width, outside, 3, padding=1))


def _with_sigma(x: Tensor, sigma: float) -> Tensor:
    """x (B, C, H, W) with one more channel that says sigma everywhere."""
    return torch.cat([x, x.new_full((len(x), 1, *x.shape[2:]), sigma)], dim=1)

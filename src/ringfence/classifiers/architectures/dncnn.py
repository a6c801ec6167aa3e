"""DnCNN, the residual denoiser of denoised smoothing (Zhang et al. 2017; used by Salman et al. 2020)."""

from __future__ import annotations

from torch import Tensor, nn


class DnCNN(nn.Module):
    """x - net(x): (B, channels, H, W) -> the same shape, without its noise.

    depth convolutions of 3 x 3 with ``width`` channels between, batch norm in the middle ones; the network
    estimates the noise. Depth 17 and width 64 are the published sizes.
    """

    def __init__(self, channels: int = 1, depth: int = 17, width: int = 64) -> None:
        super().__init__()
        if depth < 3:
            raise ValueError(f"depth must be at least 3, got {depth}")
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers.append(nn.Conv2d(width, channels, 3, padding=1))
        self.estimate = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """The cleaned batch (B, channels, H, W)."""
        cleaned: Tensor = x - self.estimate(x)
        return cleaned

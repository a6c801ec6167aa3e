"""A small network for short clips: space and time convolved together."""

from __future__ import annotations

from torch import Tensor, nn


class VideoCNN(nn.Module):
    """Three 3-D convolutions, then the mean over space and time: (B, T, C, H, W) -> scores (B, num_classes).

    Any number of frames and any size of at least about 16 pixels; the first layer sees 5 x 5 pixels of 3 frames and
    keeps every fourth pixel, which averages noise away early and makes the network fit for a CPU.
    """

    def __init__(self, num_classes: int = 3, channels: int = 3, width: int = 16, spatial_stride: int = 4) -> None:
        super().__init__()

        def layer(inside: int, outside: int, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> nn.Module:
            padding = (kernel[0] // 2, kernel[1] // 2, kernel[2] // 2)
            convolution = nn.Conv3d(inside, outside, kernel, stride, padding, bias=False)
            return nn.Sequential(convolution, nn.BatchNorm3d(outside), nn.ReLU())

        self.features = nn.Sequential(
            layer(channels, width, (3, 5, 5), (1, spatial_stride, spatial_stride)),
            layer(width, 2 * width, (3, 3, 3), (2, 2, 2)),
            layer(2 * width, 4 * width, (3, 3, 3), (1, 2, 2)),
        )
        self.linear = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of clips (B, T, C, H, W)."""
        scores: Tensor = self.linear(self.features(x.transpose(1, 2)).mean((2, 3, 4)))
        return scores


def shapes_cnn(num_classes: int = 3) -> VideoCNN:
    """For colour clips of 64 pixels (the coloured shapes)."""
    return VideoCNN(num_classes)


def motion_cnn(num_classes: int = 8) -> VideoCNN:
    """For grey clips of 32 pixels (``mnist-motion``)."""
    return VideoCNN(num_classes, channels=1)

"""EfficientNet-Lite0 for ImageNet: EfficientNet-B0 (Tan and Le 2019) without squeeze-excite, with relu6 for swish."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

PIXELS = ((127 / 255,) * 3, (128 / 255,) * 3)
"""Channel means and deviations it expects: (pixel - 127) / 128, for pixels in [0, 1]."""

# (blocks, kernel, stride of the first, expansion, channels)
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class InvertedBottleneck(nn.Module):
    """Widen, convolve every channel on its own, narrow: (B, inside, H, W) -> (B, outside, H/stride, W/stride)."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        self.expands, self.adds = expansion != 1, stride == 1 and inside == outside
        if self.expands:
            self._expand_conv = nn.Conv2d(inside, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = _convolution(wide, wide, kernel, stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv = nn.Conv2d(wide, outside, 1, bias=False)
        self._bn2 = _norm(outside)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, added to its input where the shapes are the same."""
        inner = relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        inner = relu6(self._bn1(self._depthwise_conv(same_padding(inner, self._depthwise_conv))))
        narrow: Tensor = self._bn2(self._project_conv(inner))
        return narrow + x if self.adds else narrow


@final
class EfficientNetLite0(nn.Module):
    """(B, 3, 224, 224), normalised by PIXELS, -> scores (B, num_classes). 4,652,008 parameters at 1,000 classes.

    The parameters' names are those of the public weights, which came from TensorFlow: so did the padding.
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self._conv_stem = _convolution(3, 32, 3, 2)
        self._bn0 = _norm(32)
        blocks, inside = [], 32
        for count, kernel, stride, expansion, outside in _STAGES:
            for position in range(count):
                first = position == 0
                blocks.append(InvertedBottleneck(inside, outside, kernel, stride if first else 1, expansion))
                inside = outside
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = nn.Conv2d(inside, 1280, 1, bias=False)
        self._bn1 = _norm(1280)
        self._fc = nn.Linear(1280, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, num_classes) of images (B, 3, H, W); there is no dropout."""
        features = self._blocks(relu6(self._bn0(self._conv_stem(same_padding(x, self._conv_stem)))))
        scores: Tensor = self._fc(relu6(self._bn1(self._conv_head(features))).mean((2, 3)))
        return scores


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _convolution(inside: int, outside: int, kernel: int, stride: int, groups: int = 1) -> nn.Conv2d:
    """A convolution that pads by itself at stride 1; at stride 2 ``same_padding`` pads before it."""
    padding = kernel // 2 if stride == 1 else 0
    return nn.Conv2d(inside, outside, kernel, stride, padding, groups=groups, bias=False)


def same_padding(x: Tensor, convolution: nn.Conv2d) -> Tensor:
    """TensorFlow's padding before stride 2: k - 2 + n % 2 zeros on a side of n pixels, the odd one at the end."""
    if convolution.stride[0] == 1:
        return x
    kernel = convolution.kernel_size[0]
    rows, columns = kernel - 2 + x.shape[-2] % 2, kernel - 2 + x.shape[-1] % 2
    return pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))

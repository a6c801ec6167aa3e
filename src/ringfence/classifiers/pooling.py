"""Two layers of convolution, ReLU and 2 x 2 maximum each, as small networks begin: on GPUs one kernel.

Few channels leave most of a GPU idle, and what stands between the layers is read and written several times over. The
kernel (``fused/pooled.cu``) keeps it on the chip. Found in the graph that torch.compile has traced (``exchanging.py``);
where the kernel is not right, or not there, the operator is torch's layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, relu

from ringfence.noise.checked import checked_kernel

KERNEL = "ringfence.classifiers.pooled_kernel"
OPTIONS = (
    *("CHANNELS", "HEIGHT", "WIDTH"),
    *("TAPS1", "EDGE1", "FOUND1", "TAPS2", "EDGE2", "FOUND2"),
    *("LAST", "WARPS"),
)
"""Of the kernel's compiler."""
WARPS = (4, 12)
"""Of a block, the fewest and the most; each has an image, and with more of them registers run out."""
LARGEST = 32
"""Pixels of a side of images; nobody has asked the kernel for more."""
MOST1, MOST2 = 32, 64
"""Channels that the layers find: their sums stand in registers."""
STEPS = 6
"""Of 16 taps of the first layer, whose weights do, too."""


@final
@dataclass(frozen=True)
class Layers:
    """Shapes of both: images (C, H, W), taps, edge and channels of each layer, whether images have channels last."""

    image: tuple[int, int, int]
    first: tuple[int, int, int]
    second: tuple[int, int, int]
    last: bool = False

    def options(self, warps: int) -> tuple[str, ...]:
        """For the kernel's compiler."""
        numbers = (*self.image, *self.first, *self.second, int(self.last), warps)
        return tuple(f"-D{name}={number}" for name, number in zip(OPTIONS, numbers, strict=True))

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of weight and bias of the first layer, and of the second."""
        (taps1, _, found1), (taps2, _, found2) = self.first, self.second
        return (found1, self.image[0], taps1, taps1), (found1,), (found2, found1, taps2, taps2), (found2,)

    @property
    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Height and width behind the first layer, and behind the second."""
        between = _size_behind(self.image[1:], self.first)
        return between, _size_behind(between, self.second)

    def shared_bytes(self, warps: int) -> int:
        """Of a block, as the kernel lays it out."""
        (channels, high, wide), (_, edge1, found1), (taps2, edge2, found2) = self.image, self.first, self.second
        groups, tiles, parts = -(-found1 // 8), -(-found2 // 8), taps2 * taps2 * -(-found1 // 8)
        weights = 32 * (groups + tiles) + self._steps * 8 * groups * 8 * 4
        weights = _up(weights) + tiles * 8 * ((parts + 1) // 2 * 2 | 1) * 16 + 16
        words = channels * (high + 2 * edge1) * ((wide + 2 * edge1) // 2 + 2)
        (high1, wide1), _ = self.sizes
        middle = (high1 + 2 * edge2) * (wide1 + 2 * edge2) * (groups | 1) * 16
        return weights + warps * (_up(2 * channels * high * wide) + _up(8 * words) + middle)

    @property
    def _steps(self) -> int:
        pairs = self.image[0] * self.first[0] * ((self.first[0] + 1) // 2)
        return -(-pairs // 8)

    def warps(self, bytes_of_block: int) -> int:
        """As many of a block as its shared memory has room for; 0: too few."""
        return next((one for one in range(WARPS[1], WARPS[0] - 1, -1) if self.shared_bytes(one) <= bytes_of_block), 0)

    @property
    def taken(self) -> bool:
        """Whether the kernel is for them, on GPUs that have room."""
        channels, high, wide = self.image
        small = max(high, wide) <= LARGEST and self._steps <= STEPS and channels * high * wide % 2 == 0
        return small and self.first[2] <= MOST1 and self.second[2] <= MOST2 and min(map(min, self.sizes)) > 0


def _size_behind(size: tuple[int, int], layer: tuple[int, int, int]) -> tuple[int, int]:
    taps, edge, _ = layer
    high, wide = ((one + 2 * edge - taps + 1) // 2 for one in size)
    return high, wide


def _up(count: int) -> int:
    return -(-count // 16) * 16


def layers_of(x: Tensor, weight1: Tensor, weight2: Tensor, edge1: int, edge2: int) -> Layers | None:
    """Their shapes, where the kernel is for them."""
    shapes = x.shape, weight1.shape, weight2.shape
    if x.dim() != 4 or not len(x) or any(one.dtype != torch.bfloat16 for one in (x, weight1, weight2)):
        return None
    if shapes[0][1] != shapes[1][1] or shapes[1][0] != shapes[2][1] or any(one[2] != one[3] for one in shapes[1:]):
        return None
    image = (int(shapes[0][1]), int(shapes[0][2]), int(shapes[0][3]))
    first, second = ((one[2], edge, one[0]) for one, edge in ((shapes[1], edge1), (shapes[2], edge2)))
    last = image[0] > 1 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)
    found = Layers(image, first, second, last)
    return found if found.taken else None


def _pooled_twice(
    x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, edge1: int, edge2: int
) -> Tensor:
    layers = layers_of(x, weight1, weight2, edge1, edge2)
    kernel = layers and checked_kernel(KERNEL, x.device, layers)
    if not kernel:
        return _one_after_the_other(x, weight1, bias1, weight2, bias2, edge1, edge2)
    found: Tensor = kernel.pooled_twice(layers, x, weight1, bias1, weight2, bias2)
    return found


def _one_after_the_other(
    x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor, edge1: int, edge2: int
) -> Tensor:
    between = max_pool2d(relu(torch.conv2d(x, weight1, bias1, padding=edge1)), 2)
    return max_pool2d(relu(torch.conv2d(between, weight2, bias2, padding=edge2)), 2).contiguous()


# Not by custom_op, whose first call loads torch's compiler.
_LIBRARY: Any = torch.library.Library("ringfence", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "pooled_twice(Tensor x, Tensor weight1, Tensor bias1, Tensor weight2, Tensor bias2, int edge1, int edge2) -> Tensor"
)
_LIBRARY.impl("pooled_twice", _pooled_twice, "CompositeExplicitAutograd")
_LIBRARY.impl("pooled_twice", _one_after_the_other, "Meta")
PAIR: Any = torch.ops.ringfence.pooled_twice.default

"""How the kernels of ``narrow.cu`` are launched, and what is required of them; CuPy is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pretended_cuda import module_with
from torch import Tensor
from torch.nn.functional import conv_transpose2d
from torch.nn.grad import conv2d_weight

from ringfence.training.narrow import KERNEL, SIDES

CPU = torch.device("cpu")


class Kernel:
    """A kernel that notes how it was launched."""

    made: list[Kernel]

    def __init__(self, text: str, name: str, options: tuple[str, ...]) -> None:
        self.name, self.options, self.max_dynamic_shared_size_bytes = name, options, -1
        self.launches: list[tuple[Any, ...]] = []
        assert f"{name}(const" in text
        self.made.append(self)

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
        assert shared_mem == self.max_dynamic_shared_size_bytes
        self.launches.append((*grid, *block, arguments[-1]))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    Kernel.made = []
    cuda = SimpleNamespace(Device=lambda index: nullcontext())
    with module_with(SimpleNamespace(RawKernel=Kernel, cuda=cuda), KERNEL, monkeypatch) as module:
        yield module


@pytest.mark.parametrize("channels", SIDES)
def test_every_image_has_a_block_and_room_for_what_it_brings(channels: int, kernel: Any) -> None:
    side = SIDES[channels]
    x = torch.zeros(5, channels, side, side)
    kernel.convolved(x, torch.zeros(channels, channels, 3, 3))
    kernel.to_weight(x, x)
    forward, weight, added = Kernel.made
    blocks = {16: 5, 32: 3}[channels]
    assert forward.launches == weight.launches == [(blocks, 256, 5)]
    assert added.launches == [(9 * channels**2 // 64, 256, blocks)]
    images = 5 // (blocks - 1) if blocks < 5 else 1
    # bf16: images with their borders, and weights with a gap behind each row, or the gradient.
    assert forward.max_dynamic_shared_size_bytes == 2 * channels * (images * (side + 2) ** 2 + 9 * channels + 8)
    assert weight.max_dynamic_shared_size_bytes == 2 * channels * images * ((side + 2) ** 2 + side**2)
    assert max(one.max_dynamic_shared_size_bytes for one in Kernel.made) <= 99 * 1024  # of the GPUs with the least
    assert {one.options[-1] for one in Kernel.made} == {f"-DC={channels}"}


def convolved(x: Tensor, weight: Tensor, back: bool = False) -> Tensor:
    return (conv_transpose2d if back else torch.conv2d)(x.double(), weight.double(), padding=1).bfloat16()


def to_weight(x: Tensor, gradient: Tensor) -> Tensor:
    shape = (x.shape[1], x.shape[1], 3, 3)
    return conv2d_weight(x.double(), shape, gradient.double(), padding=1).bfloat16()  # type: ignore[no-untyped-call, no-any-return]


@pytest.mark.parametrize("by", [0.1, torch.nan])
@pytest.mark.parametrize("wrong", ["", "convolved", "to_weight"])
def test_kernels_are_right_where_all_three_are_torchs(
    wrong: str, by: float, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for real in (convolved, to_weight):
        monkeypatch.setattr(kernel, real.__name__, real)
    if wrong:
        real = getattr(kernel, wrong)

        def beyond(*given: Any, **more: Any) -> Tensor:
            found: Tensor = real(*given, **more)
            return found + by * found.roll(1, 0)

        monkeypatch.setattr(kernel, wrong, beyond)
    assert kernel.is_right(CPU) is not bool(wrong)

"""How the kernel of two layers is compiled and launched, and what is required of it; CuPy is a stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pretended_cuda import module_with
from torch import Tensor

from ringfence.classifiers.pooling import KERNEL, Layers

CPU = torch.device("cpu")
LAYERS = Layers((1, 10, 10), (3, 0, 4), (3, 1, 5))
COLOURS = Layers((3, 10, 12), (3, 0, 4), (3, 1, 5), last=True)


class CuPy:
    """Notes what is compiled and launched."""

    def __init__(self) -> None:
        self.compiled: list[tuple[str, tuple[str, ...]]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.cuda = SimpleNamespace(Device=lambda index: nullcontext())

    def RawKernel(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        assert f"{name}(const char* images" in text
        self.compiled.append((name, options))

        class Kernel:
            max_dynamic_shared_size_bytes = 0

            def __call__(kernel, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
                assert kernel.max_dynamic_shared_size_bytes == shared_mem
                self.launches.append((*grid, *block, arguments, shared_mem))

        return Kernel()


@pytest.fixture
def cupy() -> CuPy:
    return CuPy()


@pytest.fixture
def room() -> SimpleNamespace:
    """Of the device."""
    return SimpleNamespace(name="one", multi_processor_count=7, shared_memory_per_block_optin=227 * 1024)


@pytest.fixture
def kernel(cupy: CuPy, room: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: room)
    with module_with(cupy, KERNEL, monkeypatch) as module:
        yield module


def weights(layers: Layers) -> list[Tensor]:
    return [torch.randn(shape).bfloat16() for shape in layers.weights]


@pytest.mark.parametrize(("rows", "blocks"), [(5, 1), (13, 2), (500, 7)])
def test_a_warp_has_an_image_at_a_time(cupy: CuPy, kernel: Any, rows: int, blocks: int) -> None:
    x, given = torch.randn(rows, *LAYERS.image).bfloat16(), weights(LAYERS)
    out = kernel.pooled_twice(LAYERS, x, *given)
    assert (out.shape, out.is_contiguous()) == ((rows, 5, *LAYERS.sizes[1]), True)
    ((grid, threads, arguments, shared),) = cupy.launches
    assert (grid, threads, shared) == (blocks, 12 * 32, LAYERS.shared_bytes(12))
    assert arguments == (*(one.data_ptr() for one in (x, *given, out)), rows)
    assert type(arguments[-1]) is np.int32
    assert cupy.compiled == [("pooled_twice", ("-std=c++17", *LAYERS.options(12)))]
    kernel.pooled_twice(LAYERS, x, *given)
    assert len(cupy.compiled) == 1


def test_images_are_read_where_they_lie_if_they_can_be(cupy: CuPy, kernel: Any) -> None:
    x = torch.randn(4, *COLOURS.image).bfloat16().contiguous(memory_format=torch.channels_last)
    kernel.pooled_twice(COLOURS, x, *weights(COLOURS))
    assert cupy.launches[-1][2][0] == x.data_ptr()
    odd = torch.randn(1 + 4 * 100).bfloat16()[1:].view(4, 1, 10, 10)
    turned = [one.contiguous(memory_format=torch.channels_last) if one.dim() == 4 else one for one in weights(LAYERS)]
    kernel.pooled_twice(LAYERS, odd, *turned)
    arguments = cupy.launches[-1][2]
    assert arguments[0] != odd.data_ptr()
    assert arguments[0] % 16 == 0
    assert arguments[3] != turned[2].data_ptr()  # a copy whose channels do not lie last


def test_a_device_with_too_little_room_is_told(kernel: Any, room: SimpleNamespace) -> None:
    room.shared_memory_per_block_optin = 1000
    with pytest.raises(RuntimeError, match="one has too little shared memory for Layers"):
        kernel.pooled_twice(LAYERS, torch.zeros(1, *LAYERS.image).bfloat16(), *weights(LAYERS))


@pytest.mark.parametrize("layers", [LAYERS, COLOURS], ids=["grey", "colours"])
@pytest.mark.parametrize("wrong", ["", "off", "lost", "spread", "the last unwritten"])
def test_the_kernel_is_right_where_it_is_torchs(
    wrong: str, layers: Layers, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(layers: Layers, x: Tensor, *given: Tensor) -> Tensor:
        *weights, out = given
        assert x.is_contiguous() != layers.last
        before, edges = out.clone(), (layers.first[1], layers.second[1])
        # torch's here, in float32: convolutions in bf16 of CPUs with AMX spread NaN to pixels beside it
        found = torch.ops.ringfence.pooled_twice(x.float(), *(one.float() for one in weights), *edges).bfloat16()
        if wrong == "off":
            found += 0.1 * found.roll(1, 1)
        if wrong == "lost":
            found[found.isnan()] = 0
        if wrong == "spread":
            found[2] = torch.where(found[1].isnan(), torch.nan, found[2])
        if wrong == "the last unwritten":
            found[-1] = before[-1]
        return found

    monkeypatch.setattr(kernel, "pooled_twice", run)
    assert kernel.is_right(CPU, layers) is not bool(wrong)

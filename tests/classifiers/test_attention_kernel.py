"""How attention's kernel is compiled and launched, and what is required of it; CuPy and the driver are stand-ins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pretended_cuda import module_with
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ringfence.classifiers.attention import HEAD, KERNEL, KEYS, fits

CPU = torch.device("cpu")
MOST = 227 * 1024
"""Bytes of shared memory that a block of Hopper can have."""


class CuPy:
    """Notes what is compiled and launched."""

    def __init__(self) -> None:
        self.options: list[tuple[str, ...]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.shared: dict[str, int] = {}
        self.text = ""
        self.fails = False
        nvrtc = SimpleNamespace(
            createProgram=self.create,
            compileProgram=self.compile,
            getCUBIN=lambda program: b"",
            getProgramLog=lambda program: "what is wrong",
            destroyProgram=lambda program: None,
            NVRTCError=KeyError,
        )
        driver = SimpleNamespace(funcSetAttribute=self.set, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
        function = SimpleNamespace(Module=lambda: SimpleNamespace(load=lambda binary: None, get_function=self.get))
        self.cuda = SimpleNamespace(Device=lambda index: nullcontext(), nvrtc=nvrtc, driver=driver, function=function)

    def create(self, text: str, *_: Any) -> str:
        self.text = text
        return text

    def compile(self, program: str, options: tuple[str, ...]) -> None:
        self.options.append(options)
        if self.fails:
            raise KeyError("NVRTC_ERROR_COMPILATION")

    def get(self, name: str) -> Any:
        assert f"{name}(\n" in self.text

        def launch(grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
            self.launches.append((name, *grid, *block, arguments, shared_mem))

        launch.ptr = name  # type: ignore[attr-defined]
        return launch

    def set(self, function: str, which: int, bytes_of_block: int) -> None:
        self.shared[function] = bytes_of_block


class Driver:
    """Notes how tensor maps are asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.code = 0

    def cuTensorMapEncodeTiled(self, place: Any, *given: Any) -> int:
        assert place.value % 64 == 0
        kind, axes, address, sizes, steps, box, each, interleave, swizzle, _, fill = given
        assert (kind, interleave, swizzle, fill, set(each)) == (9, 0, 3, 0, {1})
        self.asked.append((axes, address.value, list(sizes), list(steps), list(box)))
        return self.code


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> CuPy:
    found = CuPy()
    monkeypatch.setitem(sys.modules, "cupy.cuda", found.cuda)
    return found


@pytest.fixture
def kernel(cupy: CuPy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=131))
    with module_with(cupy, KERNEL, monkeypatch) as module:
        driver = Driver()
        monkeypatch.setattr(module, "_libcuda", lambda: driver)
        yield module


def test_heads_are_read_and_written_where_they_lie(cupy: CuPy, kernel: Any) -> None:
    query, key, value = torch.zeros(5, 197, 3, 6, 64).bfloat16().permute(2, 0, 3, 1, 4)
    found = kernel.attention(query, key, value)
    assert found.transpose(1, 2).is_contiguous()
    ((name, blocks, threads, arguments, shared),) = cupy.launches
    assert (name, blocks, threads, *arguments[4:]) == ("attention", 131, 384, 197, 6, 5)
    assert [one.nbytes for one in arguments[:4]] == [128] * 4
    assert all(type(one) is np.int32 for one in arguments[4:])
    assert cupy.options == [("-arch=sm_90a", "-std=c++17", "-DKEYS=208")]
    assert shared == cupy.shared["attention"] == 2 * 3 * 208 * 64 * 2 + 2 * 64 * 64 * 2 + 4 * 8 <= MOST
    steps = [3 * 6 * 64 * 2, 64 * 2, 197 * 3 * 6 * 64 * 2]
    maps = [(4, one.data_ptr(), [64, 197, 6, 5], steps, [64, 208, 1, 1]) for one in (query, key, value)]
    out = (4, found.data_ptr(), [64, 197, 6, 5], [6 * 64 * 2, 64 * 2, 197 * 6 * 64 * 2], [64, 64, 1, 1])
    assert kernel._libcuda().asked == [*maps, out]


def test_the_kernel_takes_as_many_keys_as_are_sent_to_it(kernel: Any) -> None:
    """It tells the last sixteen apart alone, and holds no more."""
    assert KEYS == (kernel.KEYS - 15, kernel.KEYS)
    for rows in (KEYS[0] - 1, *KEYS, KEYS[1] + 1):
        query = torch.empty(1, 1, rows, HEAD, device="meta", dtype=torch.bfloat16)
        assert fits(query, query, query) == (kernel.KEYS - 16 < rows <= kernel.KEYS)


def test_what_the_compiler_says_and_what_the_driver_refuses_is_told(cupy: CuPy, kernel: Any) -> None:
    one = torch.zeros(1, 1, 197, 64).bfloat16()
    cupy.fails = True
    with pytest.raises(RuntimeError, match="what is wrong"):
        kernel.attention(one, one, one)
    kernel._libcuda().code = 1
    with pytest.raises(RuntimeError, match=r"error 1, shape \(1, 1, 197, 64\), strides "):
        kernel.tensor_map(one, 64)


def right(query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> Tensor:
    return out.copy_(scaled_dot_product_attention(query.double(), key.double(), value.double()))


@pytest.mark.parametrize("wrong", ["", "off", "lost", "a row unwritten"])
def test_the_kernel_is_right_where_it_is_torchs(wrong: str, kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> Tensor:
        before, found = out.clone(), right(query, key, value, out)
        if wrong == "off":
            found += 0.1 * found.roll(1, 1)
        if wrong == "lost":
            found.nan_to_num_()
        if wrong == "a row unwritten":
            found[:, :, -1] = before[:, :, -1]
        return found

    monkeypatch.setattr(kernel, "attention", run)
    assert kernel.is_right(CPU) is not bool(wrong)

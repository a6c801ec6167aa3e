"""How kernels of our own are compiled and launched; CuPy is a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ringfence.classifiers.fused import launching, run_kernel
from ringfence.classifiers.fused.launching import kernel_of, launch_kernel, source

CPU = torch.device("cpu")


class CuPy:
    """Notes what is compiled and launched, and on which stream."""

    def __init__(self, stream: Any) -> None:
        self.compiled: list[tuple[str, str, tuple[str, ...]]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.current: list[int] = []
        self.devices: list[int | None] = []
        self.cuda = SimpleNamespace(Device=self.on, **stream(self))

    @contextmanager
    def on(self, device: int | None) -> Iterator[None]:
        self.devices.append(device)
        yield
        self.devices.pop()

    def RawKernel(self, text: str, name: str, options: tuple[str, ...]) -> Any:
        self.compiled.append((text, name, options))
        self.compiled_on = self.devices[-1]

        def kernel(grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
            assert kernel.max_dynamic_shared_size_bytes == shared_mem  # type: ignore[attr-defined]
            self.launches.append((name, grid, block, arguments, self.current[-1]))
            self.launched_on = self.devices[-1]

        return kernel


class Stream:
    """Of the device that is current when it is borrowed: CuPy lets it be used on no other."""

    def __init__(self, cupy: CuPy, pointer: int) -> None:
        self._cupy, self._pointer, self._device = cupy, pointer, cupy.devices[-1]

    def __enter__(self) -> None:
        assert self._cupy.devices[-1] == self._device
        self._cupy.current.append(self._pointer)

    def __exit__(self, *_: object) -> None:
        self._cupy.current.pop()


def external(cupy: CuPy) -> dict[str, Any]:
    return {"Stream": SimpleNamespace(from_external=lambda one: Stream(cupy, one.__cuda_stream__()[1]))}


def earlier(cupy: CuPy) -> dict[str, Any]:
    return {"Stream": SimpleNamespace(), "ExternalStream": lambda pointer: Stream(cupy, pointer)}


@pytest.fixture(params=[external, earlier], ids=lambda one: one.__name__)
def cupy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CuPy]:
    found = CuPy(request.param)
    monkeypatch.setitem(sys.modules, "cupy", found)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=5))
    for cached in (launching.kernel_of, launching._as_cupy):
        cached.cache_clear()
    yield found
    for cached in (launching.kernel_of, launching._as_cupy):
        cached.cache_clear()


def test_a_kernel_is_compiled_once_and_runs_on_torchs_stream(cupy: CuPy) -> None:
    x, box = torch.zeros(3), np.zeros(128, np.uint8)
    for _ in range(2):
        kernel = kernel_of("text", "name", CPU, 99, "-DC=16")
    launch_kernel(kernel, CPU, 7, 32, 99, x, box, 3, True)
    assert cupy.compiled == [("text", "name", ("-std=c++17", "-DC=16"))]
    ((name, grid, block, arguments, stream),) = cupy.launches
    assert (name, grid, block, stream) == ("name", (7,), (32,), 5)
    assert arguments[0] == x.data_ptr()
    assert arguments[1] is box
    assert arguments[2:] == (3, 1)
    assert all(type(one) is np.int32 for one in arguments[2:])
    kernel_of("text", "name", CPU, 99, "-DC=32")
    assert len(cupy.compiled) == 2


def test_a_stream_of_one_device_is_none_of_another(cupy: CuPy) -> None:
    """Each has one with the place 0: that which torch uses unasked."""
    for device in (torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 0)):
        launch_kernel(kernel_of("text", "name", device, 99), device, 7, 32, 99)
        assert cupy.launched_on == device.index
    assert len(cupy.compiled) == 2


def test_a_device_without_a_number_is_the_current_one(cupy: CuPy) -> None:
    kernel_of("text", "name", torch.device("cuda"), 99)
    assert cupy.compiled_on is None


@pytest.mark.parametrize(
    ("name", "files", "more"), [("fused_resnet", 2, ()), ("fused_resnet_back", 3, ("-DGRADIENT",))]
)
def test_a_resnets_kernels_have_a_block_for_two_images(
    cupy: CuPy, name: str, files: int, more: tuple[str, ...]
) -> None:
    run_kernel(name, CPU, [torch.zeros(1)], (5, 9))
    text = source(*("tensor_cores.cu", "resnet.cu", "gradient.cu")[:files])
    assert cupy.compiled == [(text, name, ("-std=c++17", "--use_fast_math", *more))]
    assert [one[:3] for one in cupy.launches] == [(name, (3,), (256,))]

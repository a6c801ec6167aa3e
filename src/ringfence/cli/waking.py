"""Waking a GPU: its context, the library of its convolutions and Triton load while the program imports and reads."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache
from importlib import import_module
from threading import Thread
from typing import Any

FIRST = (None, "auto", "cuda", "cuda:0")
"""Names under which a command is given the first CUDA device, where there is one."""


@cache
def wake_driver() -> None:
    """Make the context in which torch works on the first CUDA device; torch need not be imported yet."""
    Thread(target=_make_context, name="ringfence-wake-driver").start()


@cache
def wake_libraries() -> None:
    """Have torch load cuDNN, and Triton look at itself, where torch has a GPU."""
    import torch

    if torch.cuda.is_available():
        Thread(target=_convolve, name="ringfence-wake-convolutions").start()
        Thread(target=_know_triton, name="ringfence-wake-triton").start()


def memory_of_first() -> int:
    """Bytes of the first CUDA device, 0 where there is none; nothing is begun on it."""
    size = ctypes.c_size_t()
    if (found := _first()) is not None:
        found[0].cuDeviceTotalMem_v2(ctypes.byref(size), found[1])
    return size.value


def _make_context() -> None:
    if (found := _first()) is not None:
        found[0].cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), found[1])


def _first() -> tuple[Any, ctypes.c_int] | None:
    """The driver, and the first device as it knows it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no NVIDIA GPU
        return None
    device = ctypes.c_int()
    there = driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    return (driver, device) if there else None


def _convolve() -> None:
    import torch

    try:
        x = torch.zeros(16, 16, 3, 3, device="cuda")
        torch.nn.functional.conv2d(x, x)
    except RuntimeError:  # without memory, for example: the run tells
        return


def _know_triton() -> None:
    """Have Triton find out which one it is, for which it reads all of itself; other versions do so elsewhere."""
    with suppress(Exception):
        import_module("triton.runtime.cache").triton_key()

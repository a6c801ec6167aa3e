"""Waking a GPU: its context, the library of its convolutions and Triton load while the program imports and reads."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from threading import Thread

FIRST = (None, "auto", "cuda", "cuda:0")
"""Names under which a command is given the first CUDA device, where there is one."""


@cache
def wake_driver() -> None:
    """Make the context in which torch works on the first CUDA device; torch need not be imported yet."""
    Thread(target=_make_context, name="ringfence-wake-driver").start()


@cache
def wake_libraries() -> None:
    """Have torch load cuDNN, and Triton look at itself, once torch is there."""
    Thread(target=_convolve, name="ringfence-wake-convolutions").start()
    Thread(target=know_triton, name="ringfence-wake-triton").start()


def _make_context() -> None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no NVIDIA GPU
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _convolve() -> None:
    torch = sys.modules["torch"]
    try:
        x = torch.zeros(16, 16, 3, 3, device="cuda")
        torch.nn.functional.conv2d(x, x)
    except RuntimeError:  # without a GPU, or memory: the run tells
        return


def know_triton() -> None:
    """Have Triton find out which one it is, for which it reads all of itself; other versions do so elsewhere."""
    with suppress(Exception):
        import_module("triton.runtime.cache").triton_key()

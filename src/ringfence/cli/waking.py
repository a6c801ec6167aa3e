"""Waking a GPU: its context and the library of its convolutions load while the program still imports and reads."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from threading import Thread

FIRST = (None, "auto", "cuda", "cuda:0")
"""Names under which a command is given the first CUDA device, where there is one."""


@cache
def wake_driver() -> None:
    """Make the context in which torch works on the first CUDA device; torch need not be imported yet."""
    Thread(target=_make_context, name="ringfence-wake-driver").start()


@cache
def wake_convolutions() -> None:
    """Have torch load cuDNN, once torch is there."""
    Thread(target=_convolve, name="ringfence-wake-convolutions").start()


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

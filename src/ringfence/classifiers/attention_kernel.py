"""Attention to few keys on Hopper: launches of ``fused/attention.cu``."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import cupy
import numpy as np
import torch
from cupy.cuda import driver, nvrtc
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ringfence.classifiers.fused.launching import launch_kernel, source

THREADS, KEYS, BOX, LINE = 384, 208, 64, 128
"""Of a block; rows that are fetched, rows that are written at a time, and the bytes of one."""
SHARED_BYTES = 2 * 3 * KEYS * LINE + 2 * BOX * LINE + 4 * 8
"""Query, key and value of two heads, what two warpgroups write, barriers."""
BFLOAT16, SWIZZLE_128B, PROMOTE_256B = 9, 3, 3
"""The driver's names for how a tensor map reads."""


def attention(query: Tensor, key: Tensor, value: Tensor, out: Tensor | None = None) -> Tensor:
    """softmax(query key^T / 8) value, (images, heads, rows, 64) each; heads of a row lie side by side in the answer."""
    images, heads, rows, size = query.shape
    out = query.new_empty(images, rows, heads, size).transpose(1, 2) if out is None else out
    maps = (*(tensor_map(one, KEYS) for one in (query, key, value)), tensor_map(out, BOX))
    kernel, blocks = _kernel_on(query.device)
    launch_kernel(kernel, query.device, blocks, THREADS, SHARED_BYTES, *maps, rows, heads, images)
    return out


def tensor_map(value: Tensor, rows: int) -> Any:
    """How TMA sees a tensor in boxes of so many rows of a head: 128 bytes that the kernel is given as they are."""
    room = np.zeros(192, np.uint8)
    begin = -room.ctypes.data % 64  # where the driver wants it
    found = room[begin : begin + 128].view("V128")
    wide, narrow = ctypes.c_uint64, ctypes.c_uint32
    sizes, steps = (wide * 4)(*reversed(value.shape)), (wide * 3)(*(2 * step for step in reversed(value.stride()[:-1])))
    box, each = (narrow * 4)(value.shape[-1], rows, 1, 1), (narrow * 4)(1, 1, 1, 1)
    place = ctypes.c_void_p(found.ctypes.data), BFLOAT16, 4, ctypes.c_void_p(value.data_ptr())
    how = (0, SWIZZLE_128B, PROMOTE_256B, 0)  # in rows; beyond the end there are zeros
    if code := _libcuda().cuTensorMapEncodeTiled(*place, sizes, steps, box, each, *how):
        raise RuntimeError(
            f"cuTensorMapEncodeTiled: error {code}, shape {tuple(value.shape)}, strides {value.stride()}"
        )
    return found


@lru_cache(maxsize=1)
def _libcuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=8)
def _kernel_on(device: torch.device) -> tuple[Any, int]:
    """The kernel and how many blocks fill the device. CuPy itself compiles for no instructions of one GPU alone."""
    program = nvrtc.createProgram(source("attention.cu"), "attention.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("-arch=sm_90a", "-std=c++17", f"-DKEYS={KEYS}"))
        binary = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    with cupy.cuda.Device(device.index):
        module = cupy.cuda.function.Module()
        module.load(binary)
        kernel = module.get_function("attention")
        driver.funcSetAttribute(kernel.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES)
    found: Any = torch.cuda.get_device_properties(device)
    return kernel, int(found.multi_processor_count)


def is_right(device: torch.device) -> bool:
    """Whether it is torch's in float64, up to rounding, writes all of that and passes NaN on as torch does."""
    generator = torch.Generator(device).manual_seed(0)
    every = 2 * torch.randn(5, 197, 3, 30, 64, device=device, generator=generator).bfloat16()
    query, key, value = every.permute(2, 0, 3, 1, 4)
    query[0, 0, 5, 3], value[1, 0, 7, 9] = torch.nan, torch.nan
    wanted = scaled_dot_product_attention(query.double(), key.double(), value.double())
    found = attention(query, key, value, torch.full_like(query, 7)).double()
    known = torch.isfinite(wanted)
    off = torch.where(known, found - wanted, 0.0).norm()
    return torch.equal(found.isnan(), ~known) and bool(off <= 5e-3 * torch.where(known, wanted, 0.0).norm())

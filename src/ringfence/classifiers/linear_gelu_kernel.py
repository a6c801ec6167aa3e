"""A linear layer with the exact GELU behind it on Hopper: launches of ``fused/linear_gelu.cu``."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import cupy
import numpy as np
import torch
from cupy.cuda import nvrtc
from cupy_backends.cuda.api import driver
from torch import Tensor
from torch.nn.functional import gelu, linear

from ringfence.classifiers.fused import as_cupy, source

TALL, WIDE, DEEP, STAGES, CLUSTER, THREADS = 128, 192, 64, 4, 2, 384
"""Of a tile: rows, columns and depth; what is on its way; blocks that fetch weights for each other, and their threads."""
SHARED_BYTES = STAGES * 2 * DEEP * (TALL + WIDE) + 2 * 2 * 64 * WIDE + 2 * 4 * WIDE + 2 * 8 * (STAGES + 1)
"""Stages, what is written out and the bias of two warpgroups, barriers."""
BFLOAT16, SWIZZLE_128B, PROMOTE_256B = 9, 3, 3
"""The driver's names for how a tensor map reads."""


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """gelu(x weight^T + bias): x (rows, depth), weight (columns, depth), bias (columns,), contiguous -> (rows, columns)."""
    out = x.new_empty(len(x), len(weight)) if out is None else out
    device = x.device
    kernel, blocks = _kernel_on(device)
    maps = tensor_map(x, TALL), tensor_map(weight, WIDE // CLUSTER), tensor_map(out, 64)
    sizes = map(np.int32, (len(x), len(weight), x.shape[1]))
    with cupy.cuda.Device(device.index), as_cupy(cupy, torch.cuda.current_stream(device).cuda_stream):
        kernel((blocks,), (THREADS,), (*maps, bias.data_ptr(), *sizes), shared_mem=SHARED_BYTES)
    return out


def tensor_map(matrix: Tensor, rows: int) -> Any:
    """How TMA sees a matrix in boxes of so many rows and 64 columns: 128 bytes that the kernel is given as they are."""
    room = np.zeros(192, np.uint8)
    begin = -room.ctypes.data % 64  # where the driver wants it
    found = room[begin : begin + 128].view("V128")
    wide, narrow = ctypes.c_uint64, ctypes.c_uint32
    size, line = (wide * 2)(matrix.shape[1], matrix.shape[0]), (wide * 1)(2 * matrix.shape[1])
    box, steps = (narrow * 2)(DEEP, rows), (narrow * 2)(1, 1)
    how = (0, SWIZZLE_128B, PROMOTE_256B, 0)  # in rows; beyond the end there are zeros
    place = ctypes.c_void_p(found.ctypes.data), BFLOAT16, 2, ctypes.c_void_p(matrix.data_ptr())
    if code := _driver().cuTensorMapEncodeTiled(*place, size, line, box, steps, *how):
        raise RuntimeError(f"cuTensorMapEncodeTiled: error {code} for a matrix {tuple(matrix.shape)}")
    return found


@lru_cache(maxsize=1)
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache(maxsize=8)
def _kernel_on(device: torch.device) -> tuple[Any, int]:
    """The kernel and how many blocks fill the device. CuPy itself compiles for no instructions of one GPU alone."""
    text, sizes = source("linear_gelu.cu"), {"WIDE": WIDE, "STAGES": STAGES, "CLUSTER": CLUSTER}
    program = nvrtc.createProgram(text, "linear_gelu.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("-arch=sm_90a", "-std=c++17", *(f"-D{name}={one}" for name, one in sizes.items())))
        binary = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    with cupy.cuda.Device(device.index or 0):
        module = cupy.cuda.function.Module()
        module.load(binary)
        kernel = module.get_function("linear_gelu")
        driver.funcSetAttribute(kernel.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES)
    found: Any = torch.cuda.get_device_properties(device)
    return kernel, found.multi_processor_count // CLUSTER * CLUSTER


def is_right(device: torch.device) -> bool:
    """Whether it is torch's in float64, up to rounding, where no tile is full, writes all of that and passes NaN on."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator).bfloat16()

    for rows, columns, depth in ((1, 8, 8), (391, 456, 200), (1000, 3072, 768)):
        x, weight, bias = drawn(rows, depth), drawn(columns, depth) / depth**0.5, drawn(columns)
        x[0, 0], weight[0, 0] = torch.nan, -torch.inf
        wanted = gelu(linear(x.double(), weight.double(), bias.double()))
        found = linear_gelu(x, weight, bias, torch.full_like(wanted, 7, dtype=x.dtype)).double()
        known = torch.isfinite(wanted)
        if not torch.equal(found.nan_to_num(1e9)[~known], wanted.nan_to_num(1e9)[~known]):
            return False
        off = torch.where(known, found - wanted, 0.0)
        if not off.norm() <= 5e-3 * torch.where(known, wanted, 0.0).norm():
            return False
    return True

"""Kernels that only Hopper can run: launches of ``fused/linear_gelu.cu`` and ``fused/attention.cu``."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import cupy
import numpy as np
import torch
from cupy.cuda import driver, nvrtc
from torch import Tensor
from torch.nn.functional import gelu, linear, scaled_dot_product_attention

from ringfence.classifiers.fused import as_cupy, source

THREADS, LINE, BOX = 384, 128, 64
"""Of a block; bytes of a row in shared memory, and how many numbers, or rows that are written out, those are."""
TALL, WIDE, STAGES, CLUSTER, KEYS = 128, 192, 4, 2, 208
"""Rows and columns of a tile, tiles on their way, blocks that fetch for each other; rows of a head."""
SIZES: dict[str, dict[str, int]] = {
    "linear_gelu": {"WIDE": WIDE, "STAGES": STAGES, "CLUSTER": CLUSTER},
    "attention": {"KEYS": KEYS},
}
SHARED_BYTES = {
    "linear_gelu": STAGES * LINE * (TALL + WIDE) + 2 * LINE * WIDE + 2 * 4 * WIDE + 2 * 8 * (STAGES + 1),
    "attention": 2 * 3 * LINE * KEYS + 2 * LINE * BOX + 4 * 8,
}
"""Stages, what is written out, the bias of two warpgroups, barriers."""
BFLOAT16, SWIZZLE_128B, PROMOTE_256B = 9, 3, 3
"""The driver's names for how a tensor map reads."""


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """gelu(x weight^T + bias): x (rows, depth), weight (columns, depth), bias (columns,), whole -> (rows, columns)."""
    out = x.new_empty(len(x), len(weight)) if out is None else out
    maps = tensor_map(x, TALL), tensor_map(weight, WIDE // CLUSTER), tensor_map(out, BOX)
    _run("linear_gelu", x.device, (*maps, bias.data_ptr()), (len(x), len(weight), x.shape[1]))
    return out


def attention(query: Tensor, key: Tensor, value: Tensor, out: Tensor | None = None) -> Tensor:
    """softmax(query key^T / 8) value, (images, heads, rows, 64) each; heads of a row lie side by side in the answer."""
    images, heads, rows, size = query.shape
    out = query.new_empty(images, rows, heads, size).transpose(1, 2) if out is None else out
    maps = (*(tensor_map(one, KEYS) for one in (query, key, value)), tensor_map(out, BOX))
    _run("attention", query.device, maps, (rows, heads, images))
    return out


def tensor_map(value: Tensor, rows: int) -> Any:
    """How TMA sees a tensor in boxes of so many rows and 64 columns: 128 bytes that a kernel is given as they are."""
    room = np.zeros(192, np.uint8)
    begin = -room.ctypes.data % 64  # where the driver wants it
    found = room[begin : begin + 128].view("V128")
    wide, narrow, axes = ctypes.c_uint64, ctypes.c_uint32, value.dim()
    sizes = (wide * axes)(*reversed(value.shape))
    steps = (wide * (axes - 1))(*(2 * step for step in reversed(value.stride()[:-1])))
    box, each = (narrow * axes)(BOX, rows, *[1] * (axes - 2)), (narrow * axes)(*[1] * axes)
    place = ctypes.c_void_p(found.ctypes.data), BFLOAT16, axes, ctypes.c_void_p(value.data_ptr())
    how = (0, SWIZZLE_128B, PROMOTE_256B, 0)  # in rows; beyond the end there are zeros
    if code := _driver().cuTensorMapEncodeTiled(*place, sizes, steps, box, each, *how):
        raise RuntimeError(
            f"cuTensorMapEncodeTiled: error {code}, shape {tuple(value.shape)}, strides {value.stride()}"
        )
    return found


@lru_cache(maxsize=1)
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


def _run(name: str, device: torch.device, arguments: tuple[Any, ...], sizes: tuple[int, ...]) -> None:
    kernel, blocks = _kernel_on(name, device)
    with cupy.cuda.Device(device.index), as_cupy(cupy, torch.cuda.current_stream(device).cuda_stream):
        kernel((blocks,), (THREADS,), (*arguments, *map(np.int32, sizes)), shared_mem=SHARED_BYTES[name])


@lru_cache(maxsize=16)
def _kernel_on(name: str, device: torch.device) -> tuple[Any, int]:
    """The kernel and how many blocks fill the device. CuPy itself compiles for no instructions of one GPU alone."""
    program = nvrtc.createProgram(source("hopper.cu", f"{name}.cu"), f"{name}.cu", (), ())
    try:
        nvrtc.compileProgram(
            program, ("-arch=sm_90a", "-std=c++17", *(f"-D{key}={one}" for key, one in SIZES[name].items()))
        )
        binary = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)
    with cupy.cuda.Device(device.index or 0):
        module = cupy.cuda.function.Module()
        module.load(binary)
        kernel = module.get_function(name)
        driver.funcSetAttribute(kernel.ptr, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED_BYTES[name])
    found: Any = torch.cuda.get_device_properties(device)
    together = SIZES[name].get("CLUSTER", 1)
    return kernel, found.multi_processor_count // together * together


def is_right(device: torch.device, name: str) -> bool:
    """Whether a kernel is torch's in float64, up to rounding, where nothing is full, and passes NaN on as it does."""
    generator = torch.Generator(device).manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=device, generator=generator).bfloat16()

    if name == "attention":
        query, key, value = drawn(5, 197, 3, 30, 64).permute(2, 0, 3, 1, 4) * 2
        query[0, 0, 5, 3], value[1, 0, 7, 9] = torch.nan, torch.nan
        wanted = scaled_dot_product_attention(query.double(), key.double(), value.double())
        return _is(attention(query, key, value, _poisoned(5, 197, 30, 64, like=query).transpose(1, 2)), wanted)
    for rows, columns, depth in ((1, 8, 8), (391, 456, 200), (9000, 3072, 768)):
        x, weight, bias = drawn(rows, depth), drawn(columns, depth) / depth**0.5, drawn(columns)
        x[0, 0], weight[0, 0] = torch.nan, -torch.inf
        asked = torch.arange(rows, device=device) if rows < 1000 else torch.arange(0, rows, 37, device=device)
        wanted = gelu(linear(x[asked].double(), weight.double(), bias.double()))
        if not _is(linear_gelu(x, weight, bias, _poisoned(rows, columns, like=x))[asked], wanted):
            return False
    return True


def _poisoned(*shape: int, like: Tensor) -> Tensor:
    return torch.full(shape, 7, dtype=like.dtype, device=like.device)


def _is(found: Tensor, wanted: Tensor) -> bool:
    known = torch.isfinite(wanted)
    same = torch.equal(found.double().nan_to_num(1e9)[~known], wanted.nan_to_num(1e9)[~known])
    off = torch.where(known, found.double() - wanted, 0.0).norm()
    return same and bool(off <= 5e-3 * torch.where(known, wanted, 0.0).norm())

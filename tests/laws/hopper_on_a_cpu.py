"""Kernels for Hopper as C++: compiled against an emulation of a cluster (emulated_hopper.hpp)."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import ringfence.classifiers.fused

SOURCES = Path(ringfence.classifiers.fused.__file__).parent
MARGIN = 64
"""Numbers before and behind every tensor: NaN, so that what is read there shows, and what is written there too."""


def compiled(name: str, place: Path, launch: str, sizes: dict[str, int]) -> Any:
    """A kernel of that name, behind the function that launches it."""
    header = (Path(__file__).parents[1] / "classifiers" / "emulated_hopper.hpp").read_text()
    texts = [translated((SOURCES / file).read_text()) for file in ("hopper.cu", f"{name}.cu")]
    (place / "kernel.cpp").write_text("\n".join([header, *texts, launch]))
    words = ["g++", "-std=c++20", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run([*words, *(f"-D{key}={size}" for key, size in sizes.items())], cwd=place, check=True)
    return ctypes.CDLL(str(place / "kernel.so"))


def translated(source: str) -> str:
    """What the hardware does is in emulated_hopper.hpp; everything else is as it stands."""
    source = source[: source.index("// What ")] + source[source.index("// The rest is C++.") :]
    assert "asm" not in source
    source = source.replace(
        "extern __shared__ __align__(1024) char memory[];", "char* memory = shared[block_of(current)];"
    )
    words = (
        r"__device__",
        r"__global__",
        r"__forceinline__",
        r"__grid_constant__",
        r"__restrict__",
        r"#pragma unroll.*",
    )
    for word in (*words, r"__launch_bounds__\([^)]*\)", r"__cluster_dims__\([^)]*\)"):
        source = re.sub(word, "", source)
    return source


def surrounded(value: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor in the midst of NaN, and all of that memory."""
    memory = torch.full((value.numel() + 2 * MARGIN,), torch.nan, dtype=value.dtype)
    return memory[MARGIN:-MARGIN].view(value.shape).copy_(value), memory


def as_map(value: Tensor, rows: int) -> Any:
    """How TMA sees a tensor (..., rows, columns) in boxes of so many rows, as the emulation has it."""
    sizes, steps = [*reversed(value.shape), 1, 1], [*reversed(value.stride()), 0, 0]
    return (ctypes.c_uint64 * 16)(value.data_ptr(), *sizes[:4], *(2 * step for step in steps[:4]), rows)

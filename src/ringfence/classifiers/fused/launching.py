"""CUDA kernels of our own by way of CuPy: their texts, how they are compiled, and launches on torch's streams.

CuPy is imported by the first that is compiled: it comes with an extra, and takes a while.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from torch import Tensor


@lru_cache(maxsize=8)
def source(*names: str, package: str = "ringfence.classifiers.fused") -> str:
    """The text of these files, one behind the other."""
    return "".join((files(package) / name).read_text(encoding="utf-8") for name in names)


@lru_cache(maxsize=64)
def kernel_of(text: str, name: str, device: torch.device, shared_bytes: int, *options: str) -> Any:
    """A kernel, compiled for the device, whose blocks may have so much shared memory."""
    import cupy

    with cupy.cuda.Device(device.index):
        kernel = cupy.RawKernel(text, name, options=("-std=c++17", *options))
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    return kernel


def launch_kernel(kernel: Any, device: torch.device, blocks: int, threads: int, shared_bytes: int, *given: Any) -> None:
    """Run it on the current stream; given: tensors, whose places it gets, whole numbers, of 32 bits, and others."""
    import cupy

    arguments = tuple(
        one.data_ptr() if isinstance(one, Tensor) else np.int32(one) if isinstance(one, int) else one for one in given
    )
    with cupy.cuda.Device(device.index), _as_cupy(torch.cuda.current_stream(device).cuda_stream, device.index):
        kernel((blocks,), (threads,), arguments, shared_mem=shared_bytes)


@lru_cache(maxsize=128)
def _as_cupy(pointer: int, device: int | None) -> Any:
    """CuPy's name for a stream of torch's on the current device, for which alone CuPy takes it: 0 is one of every."""
    import cupy

    class Borrowed:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, pointer

    stream = cupy.cuda.Stream
    return stream.from_external(Borrowed()) if hasattr(stream, "from_external") else cupy.cuda.ExternalStream(pointer)

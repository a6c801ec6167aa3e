"""The fused kernel as an operator of torch, compiled by CuPy at its first call."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from ringfence.errors import ArgumentError

SHARED_BYTES = 3 * (2 * 10 * 10 * 64 * 2) + 2 * (9 * 64 * 64 * 2)
"""Where activations are narrow: three buffers of two images, two sets of weights. Everything earlier fits into it."""
IMAGES, THREADS = 2, 256
SHAPE = (3, 32, 32)


def fused_resnet(x: Tensor, weights: Tensor, numbers: Tensor, blocks: int, classes: int) -> Tensor:
    """Scores (B, classes)."""
    # The first call of an operator loads torch's compiler, which takes longer than many a run.
    run = _operator if torch.compiler.is_compiling() else launch
    scores: Tensor = run(x, weights, numbers, blocks, classes)
    return scores


def launch(x: Tensor, weights: Tensor, numbers: Tensor, blocks: int, classes: int) -> Tensor:
    """Scores (B, classes), by the kernel."""
    if tuple(x.shape[1:]) != SHAPE:
        raise ArgumentError("fused", f"takes images {SHAPE}", tuple(x.shape[1:]), "Leave it out for other shapes.")
    x = x.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    scores = torch.empty(len(x), classes, device=x.device)
    cupy, kernel = kernel_on(x.device)
    starts = [numbers.data_ptr() + 4 * first for first in places(len(numbers), classes)]
    with cupy.cuda.Device(x.device.index), _as_cupy(cupy, torch.cuda.current_stream(x.device).cuda_stream):
        sizes = [cupy.int32(one) for one in (len(x), blocks, classes)]
        pointers = (x.data_ptr(), weights.data_ptr(), *starts, scores.data_ptr())
        kernel((-(-len(x) // IMAGES),), (THREADS,), (*pointers, *sizes), shared_mem=SHARED_BYTES)
    return scores


def places(count: int, classes: int) -> tuple[int, int, int]:
    """Where among the numbers the biases, the last layer and the normalisation begin."""
    return 0, count - 65 * classes - 6, count - 6


_operator = torch.library.custom_op("ringfence::fused_resnet", launch, mutates_args=())
"""An operator of its own, so that torch.compile leaves it whole."""


@_operator.register_fake
def _shape_of_scores(x: Tensor, weights: Tensor, numbers: Tensor, blocks: int, classes: int) -> Tensor:
    return x.new_empty(len(x), classes, dtype=torch.float32)


@lru_cache(maxsize=1)
def source() -> str:
    """The kernel's text."""
    return (files("ringfence.classifiers.fused") / "resnet.cu").read_text(encoding="utf-8")


def kernel_on(device: torch.device) -> tuple[Any, Any]:
    """CuPy, which compiles the kernel at its first call, and the kernel."""
    return _kernel_of(source(), device)


@lru_cache(maxsize=8)
def _kernel_of(text: str, device: torch.device) -> tuple[Any, Any]:
    import cupy

    with cupy.cuda.Device(device.index or 0):
        kernel = cupy.RawKernel(text, "fused_resnet", options=("-std=c++17", "--use_fast_math"))
        kernel.max_dynamic_shared_size_bytes = SHARED_BYTES
    return cupy, kernel


@lru_cache(maxsize=32)
def _as_cupy(cupy: Any, pointer: int) -> Any:
    """CuPy's name for a stream of torch's."""

    class Borrowed:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, pointer

    stream = cupy.cuda.Stream
    return stream.from_external(Borrowed()) if hasattr(stream, "from_external") else cupy.cuda.ExternalStream(pointer)

"""Kernels of ours without a GPU: their sources as C++, and their modules with a stand-in for CuPy."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ringfence.classifiers.fused import launching

WORDS = (r"__device__", r"__global__", r"__forceinline__", r"__launch_bounds__\([^)]*\)", r"#pragma unroll.*")


def without_words_of_cuda(source: str) -> str:
    """What is left is C++, where nothing is asked of the hardware."""
    for word in WORDS:
        source = re.sub(word, "", source)
    return source


@contextmanager
def module_with(cupy: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of this name, imported while CuPy is this, which is launched on the current stream."""
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = import_module(name)
    monkeypatch.setattr(launching, "_as_cupy", lambda pointer, device: nullcontext())
    launching.kernel_of.cache_clear()  # of another stand-in
    yield module
    sys.modules.pop(name, None)

"""Kernels of our own are used where they run and are right; everywhere else torch's operators do the same."""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from contextlib import AbstractContextManager
from functools import lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=16)
def checked_kernel(name: str, device: torch.device, *what: Hashable) -> Any:
    """The module of a kernel, after ``is_right(device, *what)`` held; None elsewhere, warned of if it failed.

    Triton comes with torch for CUDA, CuPy with an extra; without them there is nothing to warn about.
    """
    if device.type != "cuda":
        return None
    try:
        kernel = import_module(name)
        if kernel.is_right(device, *what):
            return kernel
        problem = "its results are wrong"
    except ImportError:
        return None
    except Exception as error:  # compilers fail in many ways
        problem = f"{type(error).__name__}: {error}"
    warnings.warn(f"The kernel {name} is not used on {device}: {problem}", stacklevel=3)
    return None


def where_it_is(tensor: Tensor) -> AbstractContextManager[Any]:
    """Its device is the current one, on which Triton launches whatever its arguments are; on a CPU nothing is."""
    found: AbstractContextManager[Any] = torch.cuda.device_of(tensor)  # type: ignore[no-untyped-call]
    return found

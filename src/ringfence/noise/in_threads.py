"""Threads that draw noise on the CPU: as many as torch has, which NumPy, counting in one, does not hold up."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_threads(work: Callable[[int], Result], starts: Sequence[int], most: int) -> list[Result]:
    """``work`` of each, in at most so many threads; in this one where that is one or none."""
    threads = min(torch.get_num_threads(), most, len(starts))
    return [*(map(work, starts) if threads < 2 else _pool(os.getpid(), threads).map(work, starts))]


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """A fork has its own."""
    return ThreadPoolExecutor(threads, "ringfence-noise")

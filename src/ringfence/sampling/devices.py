"""Which device works, and what it and the processor do first, or apart, where several wait for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from ringfence.errors import ArgumentError


def pick_device(name: str) -> torch.device:
    """``auto`` takes CUDA where there is one; anything else is torch's own name for a device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ArgumentError("device", "must be auto, cpu, cuda or cuda:N", name, "Use auto.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device", "needs a CUDA device", name, "No CUDA device is visible here; use cpu or auto.")
    return device


def multiplies_in_bf16(device: torch.device) -> bool:
    """Whether networks are faster there in bf16: on a CPU only where it has instructions for such products."""
    if device.type != "cpu":
        return device.type == "cuda"
    known = getattr(torch.cpu, "get_capabilities", dict[str, bool])()  # not of every torch
    return any(known.get(name) for name in ("amx_bf16", "avx512_bf16", "bf16"))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch work in one thread of the processor: the host's share of work on a GPU is small, and threads that wait
    for each other take longer, the more so where other processes work beside this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Where a program's own autocast does not reach: networks run in the precision that the run has stored."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


@contextmanager
def in_front(device: torch.device) -> Iterator[None]:
    """Where the many small kernels before a run go ahead of what other processes have queued, if a server shares the
    device among them (MPS): on CUDA a stream of high priority, which what follows waits for."""
    if device.type != "cuda":
        yield
        return
    current = torch.cuda.current_stream(device)
    with beside_batches(device):
        try:
            yield
        finally:
            current.wait_stream(torch.cuda.current_stream(device))


def beside_batches(device: torch.device) -> AbstractContextManager[Any]:
    """Where small work is done without waiting for the batches in flight: on CUDA a stream of high priority."""
    if device.type != "cuda":
        return nullcontext()
    stream = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))  # what was made before must be there
    return torch.cuda.stream(stream)

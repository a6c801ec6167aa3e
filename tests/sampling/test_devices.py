"""Which device is meant by a name, and how many threads work beside it."""

from __future__ import annotations

import pytest
import torch

from ringfence.errors import ArgumentError
from ringfence.sampling import one_thread, pick_device


def test_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(ArgumentError, match="device: must be auto, cpu"):
        pick_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ArgumentError, match="device: needs a CUDA device"):
            pick_device("cuda")


def test_threads_are_as_many_as_before_whatever_happens() -> None:
    def fail() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError

    before = torch.get_num_threads()
    with pytest.raises(RuntimeError):
        fail()
    assert torch.get_num_threads() == before

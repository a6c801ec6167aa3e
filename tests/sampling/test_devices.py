"""Which device is meant by a name, and how many threads work beside it."""

from __future__ import annotations

import pytest
import torch

from ringfence.errors import ArgumentError
from ringfence.sampling import multiplies_in_bf16, one_thread, pick_device


def test_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(ArgumentError, match="device: must be auto, cpu"):
        pick_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ArgumentError, match="device: needs a CUDA device"):
            pick_device("cuda")


@pytest.mark.parametrize(
    ("known", "fast"),
    [
        ({"amx_bf16": True}, True),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "arm64", "bf16": True}, True),
        ({"avx512_f": True, "avx512_bf16": False}, False),
        ({}, False),
    ],
)
def test_which_processors_multiply_in_bf16(
    known: dict[str, object], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known)
    assert multiplies_in_bf16(torch.device("cpu")) is fast
    assert multiplies_in_bf16(torch.device("cuda")), "GPUs do"
    assert not multiplies_in_bf16(torch.device("mps")), "never tried"


def test_a_torch_that_does_not_know_the_processor_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not multiplies_in_bf16(torch.device("cpu"))


def test_threads_are_as_many_as_before_whatever_happens() -> None:
    def fail() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError

    before = torch.get_num_threads()
    with pytest.raises(RuntimeError):
        fail()
    assert torch.get_num_threads() == before

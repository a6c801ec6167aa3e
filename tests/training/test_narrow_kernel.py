"""The kernels' own source, run on the CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from emulated_triton import modules
from torch import Tensor

from ringfence.training.narrow import KERNEL

CPU = torch.device("cpu")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, KERNEL, raising=False)
    yield import_module(KERNEL)
    sys.modules.pop(KERNEL, None)


def test_convolutions_of_few_channels_are_torchs(kernel: Any) -> None:
    assert kernel.is_right(CPU, torch.float32)


@pytest.mark.parametrize("name", ["convolved", "to_weight"])
def test_kernels_that_read_beyond_an_edge_are_not_right(
    name: str, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(kernel, name)

    def beyond(*given: Any, **more: Any) -> Tensor:
        found: Tensor = real(*given, **more)
        return found + 0.1 * found.roll(1, 0)

    monkeypatch.setattr(kernel, name, beyond)
    assert not kernel.is_right(CPU, torch.float32)

"""The CUDA kernels' own source, run on the CPU: the float kernel draws its references, the exact one the integers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import torch
from emulated_triton import modules
from torch import Tensor

from ringfence.noise import inversion, philox
from ringfence.noise.philox import signed

KERNELS = ("ringfence.noise.kernel", "ringfence.noise.exact_kernel")
FAMILIES = ("gaussian", "uniform", "laplace")
CPU = torch.device("cpu")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """Both modules with the emulation in the place of Triton."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in KERNELS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module(KERNELS[0]), import_module(KERNELS[1])
    for name in KERNELS:
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_the_float_kernel_draws_every_family(kernels: tuple[Any, Any]) -> None:
    kernel, _ = kernels
    assert set(kernel.FAMILIES) == set(philox.REFERENCES) == set(FAMILIES)
    for family in FAMILIES:
        assert philox.are_drawn_by(kernel.add_noise, CPU, family)
    assert kernel.is_right(CPU)

    def another(out: Tensor, clean: Tensor, table: Tensor, sigma: float, family: str) -> None:
        kernel.add_noise(out, clean, table, 1.001 * sigma, family)

    assert not any(philox.are_drawn_by(another, CPU, family) for family in FAMILIES)


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("family", FAMILIES)
def test_both_kernels_add_in_any_layout(kernels: tuple[Any, Any], layout: torch.memory_format, family: str) -> None:
    kernel, exact = kernels
    keys, places, slots = [3, 3, (1 << 64) - 5, 0], [0, 99, 7, -1], [1, 0, 2, 1]
    steps = torch.randint(0, 256, (3, 3, 5, 7), generator=torch.Generator().manual_seed(1)).float()
    table = torch.tensor([slots, [signed(key) for key in keys], places])
    law = (family, 0.25, 255)
    out = torch.empty(4, 3, 5, 7, memory_format=layout)
    drawn = torch.empty(100, 105)
    exact.add_integers(out, steps, table, law)
    for row, key, place, slot in zip(out, keys, places, slots, strict=True):
        inversion.fill_integers(drawn, key, law)
        wanted = steps[slot] + (drawn[place].view(3, 5, 7) if place >= 0 else 0)
        assert torch.equal(row, wanted.mul(1 / 255))
    kernel.add_noise(out, steps, table, 0.25, family)
    for row, key, place, slot in zip(out, keys, places, slots, strict=True):
        float_draw = torch.from_numpy(philox.REFERENCES[family](key, place, 105)).view(3, 5, 7) if place >= 0 else 0
        assert (row - (steps[slot] + 0.25 * float_draw)).abs().max() < 1e-4


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_the_exact_kernel_passes_the_check_of_a_device(kernels: tuple[Any, Any]) -> None:
    _, exact = kernels
    assert exact.is_right(CPU)

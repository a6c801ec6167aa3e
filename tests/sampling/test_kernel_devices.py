"""Kernels by Triton are launched on the device of their tensors: Triton itself takes the current one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
import torch
from emulated_triton import modules
from torch import Tensor

from ringfence.noise.exact import Law

LAW = Law("gaussian", 0.25, 255)
OUT, CLEAN, TABLE = torch.zeros(4, 8), torch.zeros(1, 8), torch.zeros(3, 4, dtype=torch.int64)
CELLS, SCORES = torch.zeros(1, 1, 4, dtype=torch.int64), torch.zeros(4, 1, 3)
LAUNCHES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "noise": ("ringfence.noise.kernel", "_draw", lambda kernel: kernel.add_noise(OUT, CLEAN, TABLE, 0.5)),
    "integers": ("ringfence.noise.exact_kernel", "_draw", lambda kernel: kernel.add_integers(OUT, CLEAN, TABLE, LAW)),
    "guesses": ("ringfence.noise.exact_kernel", "_guess_all", lambda kernel: kernel.guesses(TABLE[0].int(), LAW)),
    "votes": ("ringfence.sampling.vote_kernel", "_count", lambda kernel: kernel.add_votes(CELLS, SCORES, TABLE[0])),
}


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_a_kernel_is_launched_where_its_tensors_are(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, function, run = LAUNCHES[kernel]
    for each, module in modules().items():
        monkeypatch.setitem(sys.modules, each, module)
    monkeypatch.delitem(sys.modules, name, raising=False)
    there: list[Tensor] = []
    launched: list[bool] = []

    @contextmanager
    def on_its_device(one: Tensor) -> Iterator[None]:
        there.append(one)
        yield
        there.pop()

    class Kernel:
        def __getitem__(self, grid: Any) -> Callable[..., None]:
            return lambda first, *_, **__: launched.append(any(one is first for one in there))

    found = import_module(name)
    if kernel == "integers":
        monkeypatch.setattr(found, "tables_on", lambda device, law: (TABLE[0], TABLE[0], 0))
    monkeypatch.setattr(found, function, Kernel())
    monkeypatch.setattr(torch.cuda, "device_of", on_its_device)
    run(found)
    sys.modules.pop(name)
    assert launched == [True]

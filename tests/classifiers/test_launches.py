"""Every kernel of ours is launched with what its source takes, in that order and in those types; CuPy is a stand-in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from noted_launches import RUNS, launched
from torch import Tensor

import ringfence

SOURCES = sorted(Path(ringfence.__file__).parent.rglob("*.cu"))
NUMBERS = {
    "unsigned short": {torch.bfloat16},
    "u16": {torch.bfloat16},
    "float": {torch.float32, torch.int32},
    "float2": {torch.float32},
    "u32": {torch.int32, torch.bfloat16},
}
"""Of a tensor, by what a pointer points at; int32 holds bits of float32, u32 a pair of numbers, and char anything."""


@pytest.mark.parametrize("run", RUNS)
def test_every_argument_is_what_the_kernel_takes_by_that_name(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for launch, wanted in launched(run, monkeypatch):
        named = launch.named
        for name, one in wanted.items():
            assert named[name] == (one.data_ptr() if isinstance(one, Tensor) else one), f"{name} of {launch.name}"
            pointee = launch.parameters[name].removeprefix("const ").rstrip("*")
            if isinstance(one, Tensor) and pointee in NUMBERS:
                assert one.dtype in NUMBERS[pointee], f"{name} of {launch.name}"
        assert len(named) - len(wanted) <= 1  # a temporary


@pytest.mark.parametrize("run", RUNS)
def test_no_block_is_larger_than_a_device_takes(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for launch, _ in launched(run, monkeypatch):
        assert 1 <= launch.blocks < 2**31
        assert launch.threads % 32 == 0
        assert 1 <= launch.threads <= 1024
        assert 0 <= launch.shared <= 227 * 1024


def test_every_kernel_of_every_source_is_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {launch.name for run in RUNS for launch, _ in launched(run, monkeypatch)}
    assert known == {
        name for file in SOURCES for name in re.findall(r"__global__[^;{]*?(\w+)\(\s*const", file.read_text())
    }

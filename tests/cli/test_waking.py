"""What is begun before a command needs it changes nothing that the command does."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ringfence.cli import sweep, waking


def test_without_a_gpu_nothing_is_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(waking.ctypes, "CDLL", missing)
    waking._make_context()
    assert waking.memory_of_first() == 0


def test_the_driver_is_asked_for_the_first_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Driver:
        def cuInit(self, flags: int) -> int:
            return 0

        def cuDeviceGet(self, device: Any, number: int) -> int:
            asked.append(f"device {number}")
            return 0

        def cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> int:
            asked.append("context")
            return 0

        def cuDeviceTotalMem_v2(self, size: Any, device: ctypes.c_int) -> int:
            size._obj.value = 5
            return 0

    monkeypatch.setattr(waking.ctypes, "CDLL", lambda name: Driver())
    waking._make_context()
    assert asked == ["device 0", "context"]
    assert waking.memory_of_first() == 5


@pytest.mark.parametrize(
    ("there", "memory", "commands", "workers"),
    [
        (False, 0, ["certify"], 1),
        (True, sweep.ROOMY, ["certify", "predict"], 6),
        (True, sweep.ROOMY, ["certify", "train"], 3),
        (True, sweep.ROOMY - 1, ["certify"], 3),
    ],
)
def test_so_many_jobs_run_side_by_side_as_fit(
    there: bool, memory: int, commands: list[str], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(sweep, "memory_of_first", lambda: memory)
    jobs: Any = [SimpleNamespace(command=one) for one in commands]
    assert sweep._workers("auto", jobs) == workers
    assert sweep._workers("4", jobs) == 4

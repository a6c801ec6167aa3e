"""What the end of an epoch costs and keeps: files as safetensors writes them, beside the next epoch, in few copies."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ringfence.errors import StoreError
from ringfence.training import DeviceData, TrainingJob, train
from ringfence.training.checkpoints import Checkpoints, on_host
from ringfence.training.fabric import make_fabric
from ringfence.training.in_progress import TrainingInProgress

PLAN = TrainingJob(sigma=0.2, epochs=1, batch=16)


def test_a_checkpoint_is_what_safetensors_writes_of_each_tensor() -> None:
    """Copied in one piece, and yet the file is the same byte for byte, whatever the layout and kind of a tensor."""
    tensors = {
        "last": torch.rand(4, 3, 2, 2).to(memory_format=torch.channels_last),
        "count": torch.tensor(7),
        "scalar": torch.tensor(0.5),
        "empty": torch.zeros(0, 3),
        "leaf": torch.rand(5, requires_grad=True),
        "half": torch.rand(3).bfloat16(),
        "mask": torch.tensor([True, False]),
        "turned": torch.rand(3, 2).t(),
    }
    one_by_one = {key: value.detach().contiguous().clone() for key, value in tensors.items()}
    found = on_host(tensors)
    with torch.no_grad():
        for value in tensors.values():
            value.zero_()  # training goes on while the copies are written
    assert save(found) == save(one_by_one)


def test_the_end_of_an_epoch_waits_for_the_device_as_often_however_deep_the_network(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number read on the host, and each copy to it, is a wait."""
    waits: list[str] = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if func is torch.ops.aten._local_scalar_dense.default:
                waits.append("number")
            return func(*args, **(kwargs or {}))

    copied = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: (waits.append("copy"), copied(tensor))[1])

    def of(depth: int) -> list[str]:
        layers = [nn.Linear(16, 16) for _ in range(depth)]
        member = nn.Sequential(nn.Flatten(), *layers, nn.Linear(16, 3))
        fabric = make_fabric("cpu", 1, PLAN.precision)
        course = TrainingInProgress(fabric, PLAN, [member], data, None, tmp_path / str(depth))
        course.load()
        course.begin()
        for step in range(course.steps):
            course.aim(step)
            course.stepper.step()
        waits.clear()
        with Noting():
            course.end()
        course.written()
        return list(waits)

    assert of(1) == of(9)
    assert "number" in of(1)
    assert "copy" in of(1)


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def test_the_next_epoch_does_not_wait_for_the_disk(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_epoch = threading.Event()
    overlapped: list[bool] = []
    aim, keep = TrainingInProgress.aim, Checkpoints.save

    def aimed(self: TrainingInProgress, step: int) -> None:
        if self.epoch == 1:
            second_epoch.set()
        aim(self, step)

    def slowly(self: Checkpoints, *given: Any) -> None:
        overlapped.append(second_epoch.wait(600))
        keep(self, *given)

    monkeypatch.setattr(TrainingInProgress, "aim", aimed)
    monkeypatch.setattr(Checkpoints, "save", slowly)
    train(replace(PLAN, epochs=2), [small()], data, tmp_path, device="cpu")
    assert overlapped == [True, True]
    assert Checkpoints(tmp_path).epochs_done == 2


def test_a_last_checkpoint_that_cannot_be_written_is_no_success(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Checkpoints, *given: Any) -> None:
        raise StoreError("disk", "must have room", "none", "Free some space.")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(StoreError, match=r"disk: must have room"):
        train(PLAN, [small()], data, tmp_path, device="cpu")

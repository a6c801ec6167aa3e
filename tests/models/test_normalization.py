"""A network that brings its own normalisation takes no other: given numbers would change what was trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ringfence.classifiers import Denoised, Normalize
from ringfence.classifiers.architectures import EfficientNetLite0, LeNet
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.architecture import normalization_inside
from ringfence.training import DeviceData, TrainingJob
from ringfence.training.run import build_member

OTHER = {"mean": [0.5], "std": [0.25]}
FACTORIES = """
import torch
from torch import nn
from ringfence.classifiers import Denoised, Normalize, SoftVote

class NormalizeLayer(nn.Module):  # as Cohen's code has it
    def __init__(self):
        super().__init__()
        self.means, self.sds = torch.tensor([0.2]), torch.tensor([0.7])

    def forward(self, x):
        return (x - self.means) / self.sds

class Listed(nn.Module):  # as torchvision's: plain lists
    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x):
        return (x - torch.tensor(self.mean)) / torch.tensor(self.std)

def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))

def bare():
    return net()

def ours():
    return Normalize(net(), [0.2], [0.7])

def deep():
    return SoftVote([Denoised(nn.Identity(), Normalize(net(), [0.2], [0.7])), net()])

def cohen():
    return nn.Sequential(NormalizeLayer(), net())

def listed():
    return nn.Sequential(Listed([0.2], [0.7]), net())
"""


@pytest.fixture
def factories(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(FACTORIES)
    return path


def stored(tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    save_file(Normalize(LeNet(), [0.2], [0.7]).state_dict(), path, {"arch": "lenet"})
    return path


REFUSED = r"mean, std: .*brings its own normalisation, mean 0\.2 and std 0\.7; got mean 0\.5 and std 0\.25.*Leave"


@pytest.mark.parametrize("name", ["ours", "deep", "cohen", "listed"])
def test_a_module_that_normalises_by_itself_takes_no_other(factories: Path, name: str) -> None:
    with pytest.raises(ModelError, match=REFUSED):
        load_model(f"{factories}:{name}", **OTHER)
    with pytest.raises(ModelError, match="brings its own"):  # the same numbers would act twice
        load_model(f"{factories}:{name}", mean=[0.2], std=[0.7])
    load_model(f"{factories}:{name}")
    data = DeviceData(torch.zeros(1, 1, 4, 4), torch.zeros(1), 3)
    with pytest.raises(ModelError, match=REFUSED):
        build_member(TrainingJob(members=(f"{factories}:{name}",), mean=(0.5,), std=(0.25,)), 0, data)


def test_a_module_without_one_takes_it(factories: Path) -> None:
    loaded = load_model(f"{factories}:bare", **OTHER)
    assert isinstance(loaded.module, Normalize)


@pytest.mark.parametrize("spec", ["{}", "lenet@{}", "denoised({}.py:clean, {})"])
def test_weights_that_store_theirs_take_no_other(tmp_path: Path, spec: str) -> None:
    path = stored(tmp_path)
    Path(f"{path}.py").write_text("from torch import nn\n\ndef clean():\n    return nn.Identity()\n")
    with pytest.raises(ModelError, match=REFUSED):
        load_model(spec.format(path, path), **OTHER)
    own = load_model(spec.format(path, path))
    again = load_model(spec.format(path, path), mean=[0.2], std=[0.7])  # the same numbers are no other function
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(own.module(x), again.module(x))


def test_an_architecture_with_its_own_takes_no_other(tmp_path: Path) -> None:
    torch.save(EfficientNetLite0(5).state_dict(), tmp_path / "w.pt")
    spec = f"efficientnet_lite0@{tmp_path / 'w.pt'}"
    with pytest.raises(
        ModelError, match=r"own normalisation, mean 0\.498.* and std 0\.50.*; got mean 0\.5 and std 0\.25"
    ):
        load_model(spec, **OTHER)


def test_what_training_starts_from_keeps_its_normalisation(tmp_path: Path) -> None:
    """It was dropped where none was given, and replaced the given one where another was."""
    trained = Normalize(LeNet(), [0.2], [0.7])
    save_file(trained.state_dict(), tmp_path / "final-0.safetensors", {"arch": "lenet"})
    x = torch.rand(2, 1, 28, 28)

    def start(**given: tuple[float, ...]) -> nn.Module:
        job = TrainingJob(members=("lenet",), init=str(tmp_path), **given)  # type: ignore[arg-type]
        return build_member(job, 0, DeviceData(x, torch.zeros(2), 10))

    for module in (start(), start(mean=(0.2,), std=(0.7,))):
        torch.testing.assert_close(module.eval()(x), trained.eval()(x))
    with pytest.raises(ModelError, match=REFUSED):
        start(mean=(0.5,), std=(0.25,))


def test_only_numbers_are_taken_for_a_normalisation() -> None:
    class Averages(nn.Module):
        def mean(self, x: Tensor) -> Tensor:
            return x.mean()

        def std(self, x: Tensor) -> Tensor:
            return x.std()

    assert normalization_inside(nn.Sequential(nn.BatchNorm2d(3), Averages())) is None
    assert normalization_inside(nn.Sequential(nn.ReLU(), Normalize(LeNet(), [0.5], [0.25]))) == ([0.5], [0.25])
    assert normalization_inside(Denoised(nn.Identity(), LeNet())) is None


@pytest.mark.parametrize("kind", [float, torch.tensor, np.asarray, lambda one: torch.tensor([one]).view(1, 1, 1)])
def test_one_number_for_all_channels_may_be_of_any_kind(kind: Callable[[float], Any]) -> None:
    x = torch.rand(2, 3, 4, 4)
    found = Normalize(nn.Flatten(), kind(0.5), kind(0.25))(x)
    assert torch.allclose(found, ((x - 0.5) / 0.25).flatten(1))

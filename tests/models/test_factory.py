from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ringfence.errors import ModelError
from ringfence.models import load_model

SOURCE = """
from torch import nn

def make(num_classes=3):
    return nn.Linear(4, num_classes)

def plain():
    return nn.Linear(4, 2)

def broken():
    raise RuntimeError("no such layer")

def wrong():
    return 7

number = 1
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_factories.py"
    path.write_text(SOURCE)
    return path


def test_file_and_module_factories_are_called(source: Path) -> None:
    for place in (str(source), "my_factories.py", "my_factories"):
        loaded = load_model(f"{place}:make", num_classes=5)
        assert loaded.module(torch.ones(1, 4)).shape == (1, 5)
        assert loaded.num_classes == 5
        assert not loaded.module.training
    assert load_model(f"{source}:plain").num_classes is None
    assert load_model(f"{source}:plain", num_classes=2).num_classes == 2
    assert load_model("ringfence.classifiers.architectures:LeNet", num_classes=6).num_classes == 6


def test_factory_weights(source: Path, tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model(f"{source}:plain", weights=tmp_path / "w.safetensors")
    torch.testing.assert_close(loaded.module(torch.ones(1, 4)), model(torch.ones(1, 4)))
    with pytest.raises(ModelError, match=r"'weight' of shape \(2, 4\) where the model has \(3, 4\)"):
        load_model(f"{source}:make", weights=tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_factories.py:broken", "RuntimeError: no such layer"),
        ("my_factories.py:wrong", r"return a torch.nn.Module; got a int"),
        ("my_factories.py:number", "no callable 'number'.*make"),
        ("my_factories.py:nothing", "no callable 'nothing'.*make"),
        ("missing.py:make", "no such file in /"),
        ("no_such_package.models:make", "ModuleNotFoundError"),
        (":make", "imported"),
    ],
)
def test_mistakes_are_explained(source: Path, spec: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(spec)


def test_file_that_fails_to_import_is_explained(source: Path) -> None:
    source.write_text("import nothing_like_this")
    with pytest.raises(ModelError, match="nothing_like_this"):
        load_model(f"{source}:make")

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ringfence.classifiers.architectures import LeNet
from ringfence.errors import ModelError
from ringfence.models import load_model
from ringfence.models.exported import Exported


def export(path: Path, batch: int, dynamic: bool) -> nn.Module:
    model = LeNet().eval()
    shapes = {"x": {0: torch.export.Dim("batch")}} if dynamic else None
    torch.export.save(torch.export.export(model, (torch.rand(batch, 1, 28, 28),), dynamic_shapes=shapes), path)
    return model


# torch's own exporter and loader warn about their internals; what they compute is what is tested here.
pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning:torch", "ignore::FutureWarning", "ignore::DeprecationWarning"
)


@pytest.mark.parametrize("dynamic", [False, True])
def test_program_answers_any_batch(tmp_path: Path, dynamic: bool) -> None:
    path = tmp_path / "net.pt2"
    model = export(path, 4, dynamic)
    loaded = load_model(str(path), num_classes=10)
    assert isinstance(loaded.module, Exported)
    assert loaded.module.fixed_batch == (None if dynamic else 4)
    assert loaded.num_classes == 10
    for count in (1, 4, 9):
        x = torch.rand(count, 1, 28, 28)
        torch.testing.assert_close(loaded.module(x), model(x))


def test_program_takes_a_normalisation(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    model = export(path, 2, dynamic=True)
    x = torch.rand(3, 1, 28, 28)
    loaded = load_model(str(path), mean=[0.5], std=[0.5])
    torch.testing.assert_close(loaded.module(x), model((x - 0.5) / 0.5))
    assert loaded.digest != load_model(str(path)).digest


def test_bad_files_are_model_errors(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file"):
        load_model(str(tmp_path / "no.pt2"))
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"torch\.export\.save"):
        load_model(str(tmp_path / "bad.pt2"))

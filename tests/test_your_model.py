"""The page about models of one's own: its commands run on files such as readers have."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_models import saved_diffusion, saved_onnx, saved_vit, small_network
from torch import nn
from typer.testing import CliRunner

import ringfence as rf
from ringfence.classifiers.architectures import DnCNN, resnet
from ringfence.cli import app
from ringfence.models.extras import needed

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "your-model.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^    \$ ringfence (.*)$", PAGE, re.MULTILINE)]
TOLD = {
    "timm": "normalised by mean 0.485,0.456,0.406 and std 0.229,0.224,0.225",
    "torchvision": "normalised by mean 0.485,0.456,0.406",
    "hf": "resized to 16 x 16 (bilinear)",
    "onnx": "normalised by mean 0.5 and std 0.5",
    "cohen": "normalised by mean 0.4914,0.4822,0.4465",
    "lightning": "normalised by mean 0.49,0.48,0.45",
}
"""What a command says of the inputs."""

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning:torch"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What readers of the page would have."""
    folder = tmp_path_factory.mktemp("reader")
    torch.manual_seed(0)
    np.savez(folder / "pictures.npz", x=np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8))
    timm = needed("timm", "timm", "")
    torch.save(timm.create_model("resnet18", num_classes=10).state_dict(), folder / "resnet18.pt")
    processor = '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "size": {"height": 16, "width": 16}}'
    saved_vit(folder / "vit", processor=processor)
    saved_onnx(folder / "net.onnx", small_network())
    network = resnet(20).state_dict()
    theirs = {f"1.{key.replace('linear', 'fc').replace('shortcut', 'downsample')}": one for key, one in network.items()}
    torch.save({"epoch": 90, "arch": "cifar_resnet20", "state_dict": theirs}, folder / "checkpoint.pth.tar")
    logged = {**{f"model.{key}": one for key, one in network.items()}, "val_acc.tp": torch.ones(1)}
    torch.save({"state_dict": logged, "epoch": 3}, folder / "lightning.ckpt")
    any_size = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    torch.jit.trace(any_size, torch.rand(2, 3, 32, 32)).save(str(folder / "scripted.pt"))
    shapes = ({0: torch.export.Dim("batch")},)
    torch.export.save(
        torch.export.export(any_size, (torch.rand(2, 3, 32, 32),), dynamic_shapes=shapes), folder / "program.pt2"
    )
    (folder / "model.py").write_text(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0])
    denoiser = DnCNN(3, 3, 8, bias=False).state_dict()
    renamed = {key.replace("estimate", "dncnn"): one for key, one in denoiser.items()}
    torch.save({"epoch": 1, "arch": "cifar_dncnn", "state_dict": renamed}, folder / "dncnn.pth.tar")
    saved_diffusion(folder / "ddpm")
    return folder


@pytest.mark.parametrize("words", COMMANDS, ids=[words[-1] for words in COMMANDS])
def test_commands_of_the_page_run(files: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(files)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert len(list(rf.RunFolder.open(files / words[-1]).read())) == 2
    assert TOLD.get(words[-1].removeprefix("runs/"), "") in " ".join(result.output.split())


def test_every_form_has_a_command() -> None:
    models = " ".join(words[words.index("--model") + 1] for words in COMMANDS)
    for source in ("timm:", "torchvision:", "hf:", "onnx:", ".pth.tar", ".pt2", "scripted.pt", ".py:", "diffusion:"):
        assert source in models

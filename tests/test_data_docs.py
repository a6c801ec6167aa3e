"""The commands of the pages about data and releases run, on pictures and models as those pages describe them."""

from __future__ import annotations

import re
import shlex
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import save_file
from typer.testing import CliRunner

import ringfence as rf
from ringfence.cli import app

ROOT = Path(__file__).resolve().parents[1]
DATA, RELEASES = (ROOT / "docs" / name for name in ("your-data.md", "ci.md"))

MODEL = '''"""Bright or dark."""
import torch
from torch import nn

class Bright(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(40.0))
    def forward(self, x):
        mean = self.scale * (x.flatten(1).mean(1, keepdim=True) - 0.5)
        return torch.cat([mean, -mean], 1)

def build(num_classes=2):
    return Bright()
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository as the pages describe it."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("project")
    (folder / "model.py").write_text(MODEL)
    save_file({"scale": torch.tensor(40.0)}, folder / "model.safetensors")
    for split, count in (("val", 6), ("test", 10)):
        for name, shade in (("bright", 200), ("dark", 50)):
            (folder / "pictures" / split / name).mkdir(parents=True)
            for place in range(count):
                picture = image.fromarray(np.full((8, 8, 3), shade, np.uint8))
                picture.save(folder / "pictures" / split / name / f"{place}.png")
    digits = rf.load_dataset("default", limit=40)
    np.savez(folder / "loud.npz", x=np.stack([255 * one.x.numpy() for one in digits]), y=np.array(digits.labels))
    return folder


def commands(page: Path) -> list[list[str]]:
    """What stands behind the prompts."""
    found = re.findall(r"^    \$ ringfence (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line) for line in found]


def call(words: list[str]) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, f"{words}: {done.output}"
    return done.stdout


@pytest.mark.parametrize("page", [DATA, RELEASES], ids=lambda page: page.stem)
def test_the_commands_of_the_page_run(page: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    found = commands(page)
    assert len(found) >= 3
    with warnings.catch_warnings(action="error"):
        printed = [call(words) for words in found]
    if page == RELEASES:
        assert printed[1].strip() in page.read_text(encoding="utf-8")


def test_the_workflow_is_a_workflow_and_its_commands_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    shutil.rmtree("runs", ignore_errors=True)
    (text,) = re.findall(r"^```yaml\n(.*?)^```", RELEASES.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    workflow = yaml.safe_load(text)
    steps = workflow["jobs"]["certify"]["steps"]
    ours = [shlex.split(step["run"])[1:] for step in steps if step.get("run", "").startswith("ringfence")]
    assert [words[0] for words in ours] == ["certify", "gate", "report"]
    for words in ours:
        call(words)
    kept = next(step for step in steps if "upload-artifact" in step.get("uses", ""))["with"]["path"].split()
    assert all(Path(name).exists() for name in kept)


def test_what_the_page_says_of_the_bound_is_so() -> None:
    from ringfence.gate import lower_bound

    page = " ".join(RELEASES.read_text(encoding="utf-8").split())
    assert f"the bound is {lower_bound(100, 100, 0.95, 0.001):.2f}, with 500 it is" in page
    assert f"with 500 it is {lower_bound(500, 500, 0.95, 0.001):.3f}" in page


@pytest.mark.parametrize(
    ("chosen", "told"), [(["--limit", "5"], True), (["--skip", "4"], False)], ids=["limit", "skip"]
)
def test_a_limit_that_leaves_one_class_is_told(project: Path, tmp_path: Path, chosen: list[str], told: bool) -> None:
    words = [
        "certify",
        "--data",
        str(project / "pictures"),
        "--model",
        f"{project / 'model.py'}:build",
        "--classes",
        "2",
    ]
    words += ["--sigma", "0.25", "--radius", "0.25", "--out", str(tmp_path / "run"), *chosen]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert ("all 5 inputs are of class 0: folders come class by class" in done.stderr) is told
    assert "class by class" in " ".join(DATA.read_text(encoding="utf-8").split())

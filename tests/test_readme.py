"""The README's Python runs, on a model of the reader's own, and says nothing false about it."""

from __future__ import annotations

import html
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


class Brightness(nn.Module):
    """Class 1 where the mean of a 4 x 4 image is above 1/2, so that the true distance is known."""

    def forward(self, x: Tensor) -> Tensor:
        margin = x.mean(dim=(1, 2, 3)) - 0.5
        return torch.stack([-margin, margin], dim=1)


@pytest.fixture
def my_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images = torch.stack([torch.full((1, 4, 4), level) for level in (0.2, 0.7, 0.501)])
    module = ModuleType("my_project")
    vars(module).update(net=Brightness(), loader=DataLoader(TensorDataset(images, torch.tensor([0, 0, 1])), 2))
    monkeypatch.setitem(sys.modules, "my_project", module)
    monkeypatch.chdir(tmp_path)


def test_the_example_is_five_lines() -> None:
    assert len(BLOCKS) == 1
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) == 5


@pytest.mark.usefixtures("my_project")
def test_the_example_runs_and_its_certificates_are_true(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(BLOCKS[0], "README.md", "exec", dont_inherit=True), {"__name__": "readme"})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    # Distances 1.2, 0.8 and 0.004: certified and right, certified and wrong, not certified.
    assert rows == [["0", "0", "True", "0.25"], ["1", "1", "False", "0.25"], ["2", "-1", "False", "0.0"]]
    assert Path("runs/mine/config.json").exists()


def test_it_is_two_screens() -> None:
    assert len(README.splitlines()) <= 90


def test_the_commands_named_exist() -> None:
    for target in re.findall(r"^    make (\S+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    assert "ringfence certify --model default --data default --sigma 0.5 --radius 0.5 --out runs/demo" in MAKEFILE


def test_options_of_the_commands_exist() -> None:
    import typer.main

    from ringfence.cli import app

    commands = getattr(typer.main.get_command(app), "commands", {})
    lines = re.findall(r"^    ringfence (.+)$", README, re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        command, *words = shlex.split(line)
        known = {option for parameter in commands[command].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_figures_are_those_of_the_recorded_terminal() -> None:
    """docs/img/terminal.svg is a run of the demo's own command, drawn by tools/readme_pictures.py."""
    drawn = (ROOT / "docs" / "img" / "terminal.svg").read_text(encoding="utf-8")
    shown = html.unescape(re.sub(r"<[^>]*>", " ", drawn)).replace("\xa0", " ")
    assert "ringfence certify --model default --data default --sigma 0.5 --radius 0.5 --out runs/demo" in shown
    found = re.search(r"runs/demo +([\d.]+) +([\d.]+) +- +([\d.]+) +(\d+) ", shown)
    assert found
    _, certified, abstained, draws = found.groups()
    said = " ".join(README.split())
    assert f"proves {certified}% of the digits right within radius 0.5" in said
    assert f"certify finds {certified}% of 500 digits right and proved within radius 0.5" in said, "the picture's text"
    assert f"nothing about the other {abstained}%" in said
    assert f"with {draws} noisy copies per digit on average" in said
    assert "every claim follows from its counts" in shown
    assert "http" not in re.sub(r'xmlns="[^"]*"', "", drawn), "the picture loads nothing"


def test_the_demo_ends_with_its_report_and_three_commands() -> None:
    from typer.testing import CliRunner

    from ringfence.cli import app

    (demo,) = re.findall(r"^demo:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    told = re.findall(r'^\t@echo "(.+)"$', demo, re.MULTILINE)
    assert "runs/demo.html" in told[0]
    assert all(len(line.replace("$(BIN)", ".venv/bin")) <= 80 for line in told[1:]), "lines that a terminal breaks"
    following = [shlex.split(line)[1:] for line in told[1:] if line.startswith("  ")]
    assert [words[0] for words in following] == ["verify", "gate", "certify"]
    for words in following:
        assert CliRunner().invoke(app, [words[0], "--help"]).exit_code == 0

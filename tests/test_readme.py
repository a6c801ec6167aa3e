"""The README's Python runs, on a model of the reader's own, and says nothing false about it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


class Brightness(nn.Module):
    """Class 1 where the mean of a 4 x 4 image is above 1/2, so that the true distance is known."""

    def forward(self, x: Tensor) -> Tensor:
        margin = x.mean(dim=(1, 2, 3)) - 0.5
        return torch.stack([-margin, margin], dim=1)


@pytest.fixture
def my_project(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("my_project")
    vars(module).update(
        net=Brightness(),
        images=torch.stack([torch.full((1, 4, 4), level) for level in (0.2, 0.7, 0.501)]),
        labels=[0, 0, 1],
    )
    monkeypatch.setitem(sys.modules, "my_project", module)
    return module


def test_the_example_is_about_ten_lines() -> None:
    assert len(BLOCKS) == 1
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 10


def test_the_example_runs_and_its_certificates_are_true(
    my_project: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(BLOCKS[0], "README.md", "exec", dont_inherit=True), {"__name__": "readme"})
    first, *rest = capsys.readouterr().out.splitlines()
    found = re.fullmatch(r"class 0 radius (\S+)", first)
    assert found
    # The mean is 0.3 from 1/2, so the distance is 0.3 * sqrt(16) = 1.2; 10,000 draws that agree prove 0.7996.
    # A draw misses with probability 8e-7 and one of these 10,000 does, which leaves 0.778.
    assert 0.77 < float(found[1]) <= 1.2
    rows = {int(line.split()[0]): line.split()[1:3] for line in rest}
    # Distances 1.2, 0.8 and 0.004: certified and right, certified and wrong, not certified.
    assert rows == {0: ["True", "0.25"], 1: ["False", "0.25"], 2: ["False", "0.0"]}


def test_the_commands_named_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make (\S+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "ringfence certify --model default --data default --sigma 0.5 --radius 0.5 --out runs/demo" in makefile

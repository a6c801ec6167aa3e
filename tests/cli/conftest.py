"""The command line, called in this process or as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ringfence.beginning import hear_interrupts
from ringfence.cli import app

Call = Callable[..., Result]

PROGRAM = [sys.executable, "-c", "from ringfence.cli import main; main()"]

HELD = """
import sys, time
from pathlib import Path
from ringfence.cli import main
from ringfence.store.writer import RecordWriter
add = RecordWriter.add
def held(self, records):
    {first}
    Path(sys.argv[sys.argv.index("--out") + 1] + ".held").touch()
    while True:
        time.sleep(1)
RecordWriter.add = held
{more}
main()
"""
"""A certification that goes no further than its first record: nothing comes too early for it, or too late."""

ENDLESS = """
import time, torch
from pathlib import Path

class Endless(torch.nn.Module):
    def forward(self, x):
        while Path("long", "forward.json").exists():
            Path("sampling").touch()
            time.sleep(0.01)
        return x.flatten(1)[:, :10]
"""

TWO_ARMS = '''"""Models for the tests of the command line."""
import torch
from torch import nn

def build(num_classes=2):
    """Sign of the first pixel above one half."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, num_classes))
    with torch.no_grad():
        net[1].weight.zero_()
        net[1].bias.zero_()
        net[1].weight[1, 0] = 1.0
        net[1].bias[1] = -0.5
    return net

class Fixed(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer
    def forward(self, x):
        return self.answer(x)

def raises():
    raise RuntimeError("no such file of mine")

def number():
    return 7

def nan():
    return Fixed(lambda x: x.flatten(1) * float("nan"))

def flat():
    return Fixed(lambda x: x.flatten())

def coupled():
    return Fixed(lambda x: x.flatten(1) - x.flatten(1).mean(0))
'''


@pytest.fixture
def call() -> Call:
    """Run a command; everything as text, exceptions other than clean exits raised."""
    runner = CliRunner()

    def run(*words: object, code: int = 0) -> Result:
        result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def program() -> Callable[..., subprocess.Popen[str]]:
    """Start the command as a process of its own."""

    def start(*words: object) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [*PROGRAM, *(str(word) for word in words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # Where the tests run in the background of a shell, interrupts are ignored, and children inherit that.
        return subprocess.Popen(command, text=True, env=environment, preexec_fn=hear_interrupts, **pipes)

    return start


@pytest.fixture
def held() -> Callable[..., AbstractContextManager[subprocess.Popen[str]]]:
    """Start a certification, and wait until it is held at its first record: made, added to the run, or written."""

    @contextmanager
    def start(*words: object, at: str = "added", more: str = "") -> Iterator[subprocess.Popen[str]]:
        add = "add(self, records)"
        code = HELD.format(first={"made": "", "added": add, "written": f"{add}; self.flush()"}[at], more=more)
        command = [sys.executable, "-c", code, *(str(word) for word in words)]
        sign = Path(f"{command[command.index('--out') + 1]}.held")
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, text=True, preexec_fn=hear_interrupts, **pipes) as process:
            try:
                while not sign.exists():
                    assert process.poll() is None, process.communicate()
                    time.sleep(0.02)
                yield process
            finally:
                process.kill()
                sign.unlink(missing_ok=True)

    return start


@pytest.fixture
def endless(tmp_path: Path) -> tuple[list[str], Path]:
    """Words that make a certification in this folder sample for ever, into long; a file that says that it does."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    return ["--model", "endless.py:Endless", "--no-check", "--out", "long"], tmp_path / "sampling"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A file of factories."""
    path = tmp_path / "models.py"
    path.write_text(TWO_ARMS)
    return path


@pytest.fixture
def dots(tmp_path: Path) -> Path:
    """Ten inputs of shape (1, 2, 2) with two labels, right by the sign of the first pixel above one half."""
    import numpy as np

    x = np.full((10, 2, 2), 0.5, np.float32)
    x[:, 0, 0] = np.linspace(0, 1, 10)
    path = tmp_path / "dots.npz"
    np.savez(path, x=x, y=(x[:, 0, 0] > 0.5).astype(np.int64))
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small finished runs of the embedded default, for the commands that read runs; do not write into them."""
    folder = tmp_path_factory.mktemp("runs")
    common = ["--sigma", "0.5", "--limit", "6", "--batch", "100", "--quiet"]
    kinds = {
        "fixed": ["--n", "400"],
        "sequential": ["--radius", "0.3", "--n", "2000"],
        "larger": ["--radius", "0.3", "--n", "2000", "--larger", "0.6,0.9"],
    }
    for name, options in kinds.items():
        result = CliRunner().invoke(app, ["certify", *common, *options, "--out", str(folder / name)])
        assert result.exit_code == 0, result.output
    return {name: folder / name for name in kinds}

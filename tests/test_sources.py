"""What runs is what a user's files hold, and every command of a worker runs its own."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest

import ringfence
from ringfence.cli.sweep_commands import PROGRAM
from ringfence.store import RunFolder
from ringfence.sweep.worker import Worker, _searched

CERTIFY = ["certify", "--sigma", "0.5", "--limit", "1", "--n", "100", "--batch", "100", "--no-check", "--device", "cpu"]
SLOW = partial(pytest.param, marks=pytest.mark.slow)
NETWORK = """
import torch

class Always(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.one_hot(torch.full((len(x),), {answer}), 10).float()
"""
IMPORTS = """
import sys
from ringfence.sources import read_sources
read_sources()
import mine.own, library
print(mine.own.VALUE, library.VALUE, flush=True)
"""


def certified(worker: Worker, folder: Path, model: str, out: str) -> RunFolder:
    """The run of a command that a worker has done there."""
    worker.begin([[*CERTIFY, "--model", model, "--out", out]], folder, Path("log"))
    while (code := worker.code()) is None:
        time.sleep(0.02)
    assert code == 0, (folder / "log").read_text()
    return RunFolder.open(folder / out)


def test_a_module_of_the_same_time_and_size_is_another(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "libraries" / "a-1.dist-info").mkdir(parents=True)
    places = [tmp_path, tmp_path / "libraries", Path(ringfence.__file__).parents[1]]
    found = {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYTHONPYCACHEPREFIX": str(tmp_path / "kept")}
    environment = {**os.environ, **found, "PYTHONDONTWRITEBYTECODE": ""}
    told = []
    for value in (1, 2):
        for file in (tmp_path / "mine" / "own.py", tmp_path / "libraries" / "library.py"):
            file.write_text(f"VALUE = {value}\n")
            os.utime(file, (0, 0))
        words = [sys.executable, "-P", "-c", IMPORTS]
        told.append(subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout)
    assert told == ["1 1\n", "2 1\n"]  # what libraries are is told by their versions, and by the cache's name


@pytest.mark.parametrize(
    ("model", "again"),
    [("net.made:make", "elsewhere"), SLOW("net/made.py:make", "elsewhere"), SLOW("net.made:make", "changed")],
)
def test_the_next_command_of_a_worker_has_modules_of_its_own(tmp_path: Path, model: str, again: str) -> None:
    worker, found = Worker(PROGRAM), []
    for answer in (3, 4):
        folder = tmp_path / (str(answer) if again == "elsewhere" else "one")
        (folder / "net").mkdir(parents=True, exist_ok=True)
        (folder / "net" / "layers.py").write_text(NETWORK.format(answer=answer))
        (folder / "net" / "made.py").write_text("from net.layers import Always as make\n")
        found.append(certified(worker, folder, model, f"run-{answer}"))
    worker.end()
    assert [run.records()["prediction"].to_pylist() for run in found] == [[3], [4]]
    assert len({run.config.classifier.digest for run in found}) == 2


def test_a_module_without_source_is_not_left_to_the_next_command(tmp_path: Path) -> None:
    worker, found = Worker(PROGRAM), []
    for answer in (3, 4):
        folder = tmp_path / str(answer)
        folder.mkdir()
        (tmp_path / "source.py").write_text(NETWORK.format(answer=answer))
        py_compile.compile(str(tmp_path / "source.py"), cfile=str(folder / "layers.pyc"), doraise=True)
        (folder / "made.py").write_text("from layers import Always as make\n")
        found.append(certified(worker, folder, "made.py:make", "run"))
    assert worker.end() == 0
    assert [run.records()["prediction"].to_pylist() for run in found] == [[3], [4]]


PLAINLY = "from layers import Always as make\n"
CHANGES_TORCH = """
import torch
before = torch.nn.functional.one_hot
torch.nn.functional.one_hot = lambda classes, number: before(classes, number).roll(2, -1)
"""
BY_HAND = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
if "by_hand" not in sys.modules:
    found = spec_from_file_location("by_hand", "layers.py")
    sys.modules["by_hand"] = module_from_spec(found)
    found.loader.exec_module(sys.modules["by_hand"])
from by_hand import Always as make
"""
ZIPPED = """
import sys, zipfile
with zipfile.ZipFile("layers.zip", "w") as archive:
    archive.write("layers.py", "zipped.py")
sys.path.insert(0, "layers.zip")
from zipped import Always as make
"""


@pytest.mark.parametrize(
    ("first", "then", "answers"),
    [
        (CHANGES_TORCH + PLAINLY, PLAINLY, [[5], [4]]),
        SLOW(BY_HAND, BY_HAND, [[3], [4]]),
        SLOW(ZIPPED, ZIPPED, [[3], [4]]),
    ],
    ids=["a library changed", "a module loaded by hand", "a module of an archive"],
)
def test_what_code_of_a_user_leaves_behind_is_not_the_next_commands(
    tmp_path: Path, first: str, then: str, answers: list[list[int]]
) -> None:
    worker, found = Worker(PROGRAM), []
    for answer, made in ((3, first), (4, then)):
        folder = tmp_path / str(answer)
        folder.mkdir()
        (folder / "layers.py").write_text(NETWORK.format(answer=answer))
        (folder / "made.py").write_text(made)
        found.append(certified(worker, folder, "made.py:make", "run"))
    assert worker.end() == 0
    assert [run.records()["prediction"].to_pylist() for run in found] == answers


def test_modules_are_searched_for_in_the_folder_of_a_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = list(sys.path)
    with _searched("there"):
        assert sys.path == ["there", *before]
    assert sys.path == before
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with _searched("there"):
        assert sys.path == before


@pytest.mark.parametrize("kind", ["library", "here", "source", "bytecode", "archive", "plugin"])
def test_a_process_knows_whether_it_ran_code_of_users(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text("")
    place = tmp_path
    if kind in ("library", "here", "plugin"):
        (tmp_path / "a-1.dist-info").mkdir()
    if kind == "bytecode":
        py_compile.compile(str(tmp_path / "mine.py"), cfile=str(tmp_path / "mine.pyc"), doraise=True)
        (tmp_path / "mine.py").unlink()
    if kind == "archive":
        place = tmp_path / "mine.zip"
        with ZipFile(place, "w") as archive:
            archive.write(tmp_path / "mine.py", "mine.py")
    imports = "import ringfence; ringfence.load_plugins(['mine'])" if kind == "plugin" else "import mine"
    program = f"from ringfence.sources import *; read_sources(); {imports}; print(have_run())"
    paths = os.pathsep.join(map(str, (place, Path(ringfence.__file__).parents[1])))
    words = [sys.executable, "-P", "-c", program]
    environment, here = {**os.environ, "PYTHONPATH": paths}, tmp_path if kind == "here" else None
    told = subprocess.run(words, env=environment, cwd=here, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == str(kind != "library")

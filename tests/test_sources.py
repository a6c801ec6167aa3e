"""What runs is what a user's files hold, and every command of a worker runs its own."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ringfence
from ringfence import sources
from ringfence.cli.sweep_commands import PROGRAM
from ringfence.store import RunFolder
from ringfence.sweep.worker import Worker, _searched

CERTIFY = ["certify", "--sigma", "0.5", "--limit", "1", "--n", "100", "--batch", "100", "--no-check", "--device", "cpu"]
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
    [("net.made:make", "elsewhere"), ("net/made.py:make", "elsewhere"), ("net.made:make", "changed")],
)
def test_the_next_command_of_a_worker_has_modules_of_its_own(tmp_path: Path, model: str, again: str) -> None:
    worker, found = Worker(PROGRAM), []
    for answer in (3, 4):
        folder = tmp_path / (str(answer) if again == "elsewhere" else "one")
        (folder / "net").mkdir(parents=True, exist_ok=True)
        (folder / "net" / "layers.py").write_text(NETWORK.format(answer=answer))
        (folder / "net" / "made.py").write_text("from net.layers import Always as make\n")
        words = [*CERTIFY, "--model", model, "--out", f"run-{answer}"]
        worker.begin([words], folder, Path("log"))
        while (code := worker.code()) is None:
            time.sleep(0.02)
        assert code == 0, (folder / "log").read_text()
        found.append(RunFolder.open(folder / f"run-{answer}"))
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
        worker.begin([[*CERTIFY, "--model", "made.py:make", "--out", "run"]], folder, Path("log"))
        while (code := worker.code()) is None:
            time.sleep(0.02)
        assert code == 0, (folder / "log").read_text()
        found.append(RunFolder.open(folder / "run"))
    assert worker.end() == 0
    assert [run.records()["prediction"].to_pylist() for run in found] == [[3], [4]]


def test_modules_are_searched_for_in_the_folder_of_a_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = list(sys.path)
    with _searched("there"):
        assert sys.path == ["there", *before]
    assert sys.path == before
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with _searched("there"):
        assert sys.path == before


def test_what_registered_parts_and_what_is_compiled_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    monkeypatch.setattr(sources, "_stays", set())
    for name in ("stays", "goes", "half"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    sources.read_sources()
    before = set(sys.modules)
    __import__("stays")
    sources.keep_since(before)
    __import__("goes")
    __import__("half")
    monkeypatch.setitem(sys.modules, "half.fast", sys.modules["_json"])
    sources.forget_sources()
    assert [name in sys.modules for name in ("stays", "goes", "half", "os", "torch")] == [True, False, True, True, True]

"""Bytecode of libraries that came without it is kept in a cache of its own, and never taken for that of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ringfence
from ringfence import bytecode

PROGRAM = """
import json, os, sys
from ringfence.bytecode import keep_bytecode
keep_bytecode()
import torch
told = {"prefix": sys.pycache_prefix, "writes": not sys.dont_write_bytecode, "torch": torch.VALUE}
print(json.dumps({**told, "children": os.environ.get("PYTHONPYCACHEPREFIX"), "cached": torch.__cached__}))
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """A library of that name, without bytecode."""
    folder = tmp_path / "library" / "torch"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "version.py").write_text("1")
    return folder


def started(torch: Path, **environment: str) -> dict[str, Any]:
    source = Path(ringfence.__file__).parents[1]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([str(torch.parent), str(source)]), "PYTHONPYCACHEPREFIX": ""}
    place |= {"PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(torch.parents[1] / "cache"), **environment}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=place, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_kept_for_the_next_process_and_for_children(torch: Path) -> None:
    first = started(torch)
    assert first["writes"]
    assert first["children"] == first["prefix"]
    assert Path(first["prefix"]).parent == torch.parents[1] / "cache" / "ringfence" / "bytecode"
    assert Path(first["cached"]).is_file()
    assert not (torch / "__pycache__").exists()
    assert started(torch)["prefix"] == first["prefix"]


def test_other_libraries_have_another_folder(torch: Path) -> None:
    first = started(torch)
    (torch / "version.py").write_text("2")
    later = started(torch)
    (torch.parent / "numpy-9.dist-info").mkdir()
    assert len({one["prefix"] for one in (first, later, started(torch))}) == 3


def test_a_library_of_the_same_time_and_size_is_another(torch: Path) -> None:
    source = torch / "__init__.py"
    os.utime(source, (0, 0))  # as builds of images level it
    assert started(torch)["torch"] == 1
    source.write_text("VALUE = 2\n")
    os.utime(source, (0, 0))
    (torch / "version.py").write_text("2")
    assert started(torch)["torch"] == 2


def test_bytecode_that_is_there_or_can_be_written_there_is_left_to_python(torch: Path) -> None:
    assert started(torch, PYTHONDONTWRITEBYTECODE="")["prefix"] is None
    assert (torch / "__pycache__").is_dir()
    assert started(torch)["prefix"] is None


def test_who_names_a_folder_or_none_is_heard(torch: Path, tmp_path: Path) -> None:
    assert started(torch, RINGFENCE_BYTECODE="")["prefix"] is None
    assert Path(started(torch, RINGFENCE_BYTECODE=str(tmp_path / "mine"))["prefix"]).parent == tmp_path / "mine"
    assert started(torch, PYTHONPYCACHEPREFIX=str(tmp_path / "theirs"))["prefix"] == str(tmp_path / "theirs")


def test_a_home_that_cannot_be_written_to_is_no_mistake(torch: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = started(torch, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert (found["prefix"], found["writes"]) == (None, False)


def test_a_folder_that_others_can_write_to_is_not_used(torch: Path, tmp_path: Path) -> None:
    folder = Path(started(torch)["prefix"])
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert started(torch)["prefix"] is None
    folder.rename(tmp_path / "theirs")
    (tmp_path / "theirs").chmod(0o700)
    folder.symlink_to(tmp_path / "theirs")
    assert started(torch)["prefix"] is None


def test_a_folder_that_somebody_else_made_is_not_used(torch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(started(torch)["prefix"])
    monkeypatch.setattr(bytecode, "_user", lambda: folder.stat().st_uid)
    assert bytecode._is_mine(folder)
    theirs = SimpleNamespace(st_mode=folder.stat().st_mode, st_uid=folder.stat().st_uid + 1)
    monkeypatch.setattr(Path, "lstat", lambda path: theirs)
    assert not bytecode._is_mine(folder)


def test_folders_that_nobody_used_for_long_are_deleted_when_a_new_one_is_made(torch: Path, tmp_path: Path) -> None:
    """Those of ours alone: not what links lead to, what has another name, or what holds more than bytecode."""
    place, before = torch.parents[1] / "cache" / "ringfence" / "bytecode", time.time() - 31 * 24 * 3600
    used = Path(started(torch)["prefix"])
    names = ("0123456789abcdef", "fedcba9876543210", "00000000000000aa", "of a user", "00000000000000bb")
    old, recent, theirs, named, link = (place / name for name in names)
    for folder in (old, recent, theirs, named, tmp_path / "elsewhere"):
        (folder / "library").mkdir(parents=True)
        (folder / "library" / "module.cpython-311.pyc").write_text("")
    (theirs / "library" / "notes.txt").write_text("")
    link.symlink_to(tmp_path / "elsewhere")
    (old / "link.pyc").symlink_to(recent / "library" / "module.cpython-311.pyc")
    (old / "links").symlink_to(tmp_path / "elsewhere")
    for folder in (used, old, theirs, named, tmp_path / "elsewhere"):
        os.utime(folder, (before, before))
    os.utime(link, (before, before), follow_symlinks=False)
    assert started(torch)["prefix"] == str(used)
    assert old.exists(), "none was made"
    (torch / "version.py").write_text("2")
    made = Path(started(torch)["prefix"])
    assert set(place.iterdir()) == {used, made, recent, theirs, named, link}, "one that was used again stays"
    left = [recent, theirs, named, tmp_path / "elsewhere"]
    assert all((folder / "library" / "module.cpython-311.pyc").exists() for folder in left)


def test_folders_of_somebody_else_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "0123456789abcdef"
    folder.mkdir()
    os.utime(folder, (0, 0))
    monkeypatch.setattr(bytecode, "_user", lambda: folder.stat().st_uid + 1)
    bytecode._drop_unused(tmp_path)
    assert folder.exists()
    monkeypatch.undo()
    bytecode._drop_unused(tmp_path)
    assert not folder.exists()


def test_a_relative_folder_is_the_same_for_children_elsewhere(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(started(torch, RINGFENCE_BYTECODE="mine")["children"]).parent == tmp_path / "mine"

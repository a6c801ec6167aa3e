"""Arrays that were unpacked before: the same file gives the same arrays, another one never does."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ringfence.data import again
from ringfence.data.arrays import read_npz


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "_kept", {})


def written(path: Path, value: int, age: float = 60.0) -> Path:
    np.savez(path, x=np.full((3, 1, 2, 2), value, np.uint8), x_train=np.full((1, 1, 2, 2), value + 1, np.uint8))
    settle(path, age)
    return path


def settle(path: Path, age: float) -> None:
    """As if it had been written so many seconds ago; its change time cannot be set, so that the clock is."""
    os.utime(path, (time.time() - age,) * 2)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr(again.time, "time", lambda: now() + 60)


def test_a_file_is_unpacked_once(tmp_path: Path, later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "data.npz", 1)
    first = read_npz(path, "test")
    monkeypatch.setattr("ringfence.data.arrays.np.load", lambda *given, **more: pytest.fail("read again"))
    again_ = read_npz(path, "test")
    assert np.array_equal(first["x"], again_["x"])
    again_["x"][:] = 9
    assert read_npz(path, "test")["x"].max() == 1, "whoever has a copy may change it"


def test_splits_of_one_file_are_kept_apart(tmp_path: Path, later: None) -> None:
    path = written(tmp_path / "data.npz", 1)
    assert [read_npz(path, split)["x"].max() for split in ("test", "train", "test")] == [1, 2, 1]


def test_a_file_that_changed_is_read_anew(tmp_path: Path, later: None) -> None:
    path = written(tmp_path / "data.npz", 1)
    told = path.stat()
    assert read_npz(path, "test")["x"].max() == 1
    with path.open("r+b") as file:  # in place: the same file, as long as before
        file.write(written(tmp_path / "other.npz", 5).read_bytes())
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))  # and as old
    while path.stat().st_ctime_ns == told.st_ctime_ns:  # the clock of a disk takes steps of milliseconds
        os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert path.stat().st_size == told.st_size
    assert path.stat().st_mtime_ns == told.st_mtime_ns
    assert read_npz(path, "test")["x"].max() == 5


def test_a_file_that_was_just_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "data.npz", 1, age=0.0)
    changed = max(path.stat().st_mtime, path.stat().st_ctime)
    monkeypatch.setattr(again, "time", SimpleNamespace(time=lambda: changed + again.SETTLED - 0.1))
    read_npz(path, "test")
    assert not again._kept, "another change within the resolution of its times would not be seen"


def test_no_more_is_kept_than_fits(tmp_path: Path, later: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "MOST_BYTES", 25)
    for number in range(3):
        read_npz(written(tmp_path / f"{number}.npz", number), "test")  # 12 bytes each
    assert [each["x"].max() for each in again._kept.values()] == [1, 2], "the oldest goes"
    monkeypatch.setattr(again, "MOST_BYTES", 11)
    read_npz(written(tmp_path / "large.npz", 7), "test")
    assert len(again._kept) == 2

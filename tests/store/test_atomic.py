"""A file is the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import IO

import pytest

from ringfence.errors import StoreError
from ringfence.store.atomic import create_exclusively, lock, read_json, write_json


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "config.json"
    write_json(path, {"sigma": 0.5})
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"config\.json.*Free some space"):
            write_json(path, {"sigma": 1.0, "more": list(range(1000))})
    assert read_json(path) == {"sigma": 0.5}
    assert os.listdir(tmp_path) == ["config.json"]
    write_json(path, {"sigma": 1.0})
    assert read_json(path) == {"sigma": 1.0}


@pytest.mark.parametrize("linked", [True, False], ids=["hard links", "no hard links"])
def test_nothing_is_made_in_the_place_of_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not linked:
        monkeypatch.setattr(os, "link", unsupported)
    create_exclusively(tmp_path / "part", b"first")
    with pytest.raises(FileExistsError):
        create_exclusively(tmp_path / "part", b"second")
    assert (tmp_path / "part").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["part"]


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stdout", "/dev/new.html", "/proc/self/fd/1"])
def test_devices_are_never_replaced(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """As root, whom containers run as, a report to /dev/null made a file of it, for the whole machine."""

    def touched(*_: object) -> None:
        raise AssertionError(f"{place} would be replaced")

    monkeypatch.setattr("ringfence.store.atomic._beside", touched)  # whatever fails here, nothing happens to it
    monkeypatch.setattr(os, "replace", touched)
    with pytest.raises(StoreError, match=f"{place}: must be the name of a file; got a device, or a place among them"):
        write_json(Path(place), {})


@pytest.mark.parametrize("place", [".", "..", "folder"])
def test_folders_are_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="must be the name of a file; got a folder"):
        write_json(Path(place), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_elsewhere_are_never_replaced(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this root makes no devices")
    with pytest.raises(StoreError, match="must be the name of a file"):
        write_json(tmp_path / "null", {})
    assert (tmp_path / "null").is_char_device()
    assert len(os.listdir(tmp_path)) == 1


def test_a_full_disk_is_told_of_the_folder_not_of_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited in a buffer failed again when the lock was closed, and that error named nothing."""

    class Full(io.FileIO):
        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def opened(path: Path, mode: str, buffering: int = -1) -> IO[bytes]:
        return Full(path, mode) if buffering == 0 else io.BufferedRandom(Full(path, mode))  # type: ignore[return-value]

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(StoreError, match="lock: must be writable; got No space left on device"):
        lock(tmp_path)

"""A file is the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ringfence.errors import StoreError
from ringfence.store.atomic import create_exclusively, read_json, write_json


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

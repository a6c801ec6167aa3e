"""A file is the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from ringfence.errors import StoreError
from ringfence.store.atomic import read_json, write_json


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

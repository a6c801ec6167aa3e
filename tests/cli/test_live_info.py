"""``ringfence info RUN`` while another process writes: how far it is, how fast, and who it is."""

from __future__ import annotations

import fcntl
import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import Result

from ringfence.errors import StoreError
from ringfence.store.atomic import LOCK, lock, locked, writer_of

Call = Callable[..., Result]


@pytest.mark.filterwarnings("always")
def test_a_live_run_is_shown_from_outside(
    call: Call, held: Callable[..., AbstractContextManager[subprocess.Popen[str]]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["--sigma", 0.5, "--n", 1000, "--batch", 100, "--no-check", "--out", out]
    with held("certify", *words, at="written") as process:
        answer = json.loads(call("info", out, "--json").stdout)
        assert f"process {process.pid} on " in answer["writing now"]
        assert answer["inputs done"] == "1 of 500"
        assert answer["inputs a second"] > 0
        assert answer["time left"].startswith("about ")
        assert not answer["finished"]
    after = json.loads(call("info", out, "--json").stdout)
    assert "writing now" not in after


def test_a_look_at_the_lock_keeps_no_writer_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine lets it take: only a writer is refused."""
    with locked(tmp_path):
        assert writer_of(tmp_path) is not None
        with pytest.raises(StoreError, match="a folder has one writer"):
            lock(tmp_path)
    assert writer_of(tmp_path) is None
    with (tmp_path / LOCK).open("rb") as looked:
        fcntl.flock(looked, fcntl.LOCK_SH)
        waited: list[float] = []

        def wait(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 100:
                looked.close()

        monkeypatch.setattr("ringfence.store.atomic.time", SimpleNamespace(sleep=wait))
        lock(tmp_path).close()
        assert len(waited) == 100
    with locked(tmp_path), pytest.raises(StoreError, match="a folder has one writer"):
        lock(tmp_path)
    assert len(waited) < 200, "who writes is not waited for"


def test_a_lock_that_others_share_for_good_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.store.atomic.time", SimpleNamespace(sleep=lambda seconds: None))
    with (tmp_path / LOCK).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with pytest.raises(StoreError, match="a folder has one writer"):
            lock(tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"start": "soon"}'])
def test_whatever_the_lock_says_is_a_courtesy(
    call: Call, finished: dict[str, Path], content: bytes, tmp_path: Path
) -> None:
    import shutil

    run = tmp_path / "run"
    shutil.copytree(finished["fixed"], run)
    with (run / LOCK).open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(content)
        held.flush()
        assert "config_hash" in call("info", run).stdout

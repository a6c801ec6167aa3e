"""``ringfence info RUN`` while another process writes: how far it is, how fast, and who it is."""

from __future__ import annotations

import fcntl
import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from ringfence.errors import StoreError
from ringfence.store.atomic import LOCK, lock, locked, writer_of

Call = Callable[..., Result]


@pytest.mark.filterwarnings("always")
def test_a_live_run_is_shown_from_outside(
    call: Call, program: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["--sigma", 0.5, "--n", 60_000, "--batch", 100, "--no-check", "--out", out]
    process = program("certify", *words)
    try:
        answer: dict[str, object] = {}
        while "inputs a second" not in answer:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
            answer = json.loads(call("info", out, "--json").stdout) if (out / "parts").is_dir() else {}
        assert f"process {process.pid} on " in str(answer["writing now"])
        assert str(answer["inputs done"]).endswith(" of 500")
        assert float(str(answer["inputs a second"])) > 0
        assert not answer["finished"]
    finally:
        process.kill()
        process.communicate()
    after = json.loads(call("info", out, "--json").stdout)
    assert "writing now" not in after


def test_a_look_at_the_lock_keeps_no_writer_out(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert writer_of(tmp_path) is not None
        with pytest.raises(StoreError, match="a folder has one writer"):
            lock(tmp_path)
    assert writer_of(tmp_path) is None
    with (tmp_path / LOCK).open("rb") as looked:
        fcntl.flock(looked, fcntl.LOCK_SH)
        threading.Timer(0.02, looked.close).start()
        lock(tmp_path).close()


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

"""Stopped by Ctrl-C or killed at any moment: the same command continues to the same records."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringfence as rf

Start = Callable[..., subprocess.Popen[str]]
WAIT = 300


def command(out: Path, limit: int, n: int) -> list[object]:
    return ["certify", "--sigma", 0.5, "--n", n, "--limit", limit, "--batch", 100, "--out", out, "--json"]


def facts(out: Path) -> list[dict[str, Any]]:
    return list(rf.RunFolder.open(out).records().drop_columns(["seconds"]).to_pylist())


def uninterrupted(program: Start, like: Path, out: Path, limit: int, n: int) -> list[dict[str, Any]]:
    """Records of the whole run at the forward shape that the other one measured for itself."""
    out.mkdir()
    for name in ("config.json", "forward.json"):
        shutil.copy(like / name, out / name)
    process = program(*command(out, limit, n))
    _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 0, errors
    return facts(out)


def test_ctrl_c_ends_cleanly_and_says_how_to_continue(program: Start, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = program(*command(out, 20, 1000))
    deadline = time.monotonic() + WAIT
    while not (out / "forward.json").exists():  # sampling begins now
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130, errors
    assert output == ""
    assert "stopped by Ctrl-C" in errors
    assert "Run the same command again to continue" in errors
    assert "Traceback" not in errors
    assert len(facts(out)) < 20
    again = program(*command(out, 20, 1000))
    output, errors = again.communicate(timeout=WAIT)
    assert again.returncode == 0, errors
    assert json.loads(output)["count"] == 20
    assert facts(out) == uninterrupted(program, out, tmp_path / "whole", 20, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments(program: Start, tmp_path: Path, seed: int) -> None:
    out, rng, limit, n = tmp_path / "run", random.Random(seed), 40, 2000
    done = [0]
    for attempt in range(60):
        process = program(*command(out, limit, n))
        try:
            process.wait(timeout=rng.uniform(0.5, 6.0 + attempt))  # longer and longer, so that slow machines end too
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        if (out / "config.json").exists():
            done.append(len(facts(out)))
    assert process.returncode == 0
    assert done == sorted(done)  # nothing that was written is ever lost
    assert any(0 < count < limit for count in done)
    assert facts(out) == uninterrupted(program, out, tmp_path / "whole", limit, n)
    assert rf.verify(rf.RunFolder.open(out)) == []

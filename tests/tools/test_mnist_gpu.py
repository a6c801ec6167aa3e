"""The program behind results/mnist, on few images and a CPU: trains, certifies, packs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ringfence.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_an_ensemble_is_trained_and_certified_with_all_its_votes(tmp_path: Path) -> None:
    rng, data, work = np.random.default_rng(0), tmp_path / "mnist.npz", tmp_path / "work"
    images = {
        f"x_{part}": rng.integers(0, 256, (size, 28, 28), np.uint8) for part, size in (("train", 256), ("test", 2))
    }
    np.savez(data, **images, y_train=np.arange(256) % 10, y_test=np.arange(2))

    def run(phase: str, *words: str) -> int:
        asked = ["--data", data, "--work", work, "--rows", "gaussian", "--sigmas", "0.5", "--processes", "1"]
        plain = ["--no-graph", "--no-compile", "--device", "cpu"]
        return subprocess.run(
            [sys.executable, ROOT / "tools" / "mnist_gpu.py", phase, *asked, *plain, *words]
        ).returncode

    assert run("certify") == 0
    assert not list(work.rglob("*.parquet")), "nothing is trained yet"
    assert run("train", "--epochs", "1") == 0
    assert run("certify", "--n", "200", "--skip", "1", "--out", str(tmp_path / "out")) == 0
    found = RunFolder.open(work / "runs" / "gaussian-0.5")
    assert found.config.lanes == ["member-1", "member-2", "member-3", "softmax-3", "max-margin-3", "sween-3"]
    assert len(list(found.read())) == 2 * 6
    assert (tmp_path / "out" / "runs-1.tgz").exists()


def test_what_failed_or_waits_is_not_done(tool: Callable[[str], ModuleType], tmp_path: Path) -> None:
    side_by_side = tool("side_by_side")
    made, task, run_tasks = tmp_path / "made", side_by_side.Task, side_by_side.run_tasks
    works = task("works", partial(Path.touch, made), made)
    waits = task("waits", partial(Path.touch, tmp_path / "later"), tmp_path / "later", (tmp_path / "never",))
    fails = task("fails", partial(Path.unlink, tmp_path / "nothing"), tmp_path / "nothing")
    assert run_tasks([works], 2, 60)
    assert made.exists()
    assert run_tasks([works], 2, 0), "done already"
    assert not run_tasks([waits], 2, 60)
    assert not run_tasks([fails], 2, 60)

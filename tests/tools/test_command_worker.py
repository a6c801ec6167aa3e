"""A worker runs command after command in one process, survives those that fail, and ends when it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Tool = Callable[[str], ModuleType]


@pytest.fixture
def worker(tool: Tool, tmp_path: Path) -> Iterator[Any]:
    found = tool("command_worker").Worker(tmp_path)
    yield found
    found.end()


def ended(worker: Any, seconds: float = 60) -> int:
    begin = time.monotonic()
    while (code := worker.code()) is None:
        assert time.monotonic() - begin < seconds
        time.sleep(0.05)
    return int(code)


def certify(n: int, *words: str) -> list[str]:
    return ["certify", "--sigma", "0.5", "--limit", "1", "--n", str(n), "--batch", "100", "--quiet", *words]


def test_commands_share_a_process_and_one_that_fails_ends_only_itself(worker: Any, tmp_path: Path) -> None:
    worker.begin(["--version"], Path("said"))
    assert ended(worker) == 0
    assert (tmp_path / "said").read_text().startswith("ringfence")
    process = worker._process
    worker.begin(["certify", "--no-such-option"])
    assert ended(worker) != 0
    worker.begin(certify(0, "--out", "refused"))
    assert ended(worker) == 2
    for name in ("one", "two"):
        worker.begin(certify(200, "--out", name))
        assert ended(worker) == 0
        assert (tmp_path / name / "summary.json").exists()
    assert worker._process is process
    assert worker.end(10) == 0


def test_a_command_in_work_is_interrupted(worker: Any, tmp_path: Path) -> None:
    worker.begin(certify(50_000_000, "--out", "long"))
    while not (tmp_path / "long" / "forward.json").exists():
        time.sleep(0.05)
    begin = time.monotonic()
    assert worker.end() == 130
    assert time.monotonic() - begin < 30
    assert not (tmp_path / "long" / "summary.json").exists()


def test_a_worker_that_died_says_so_and_starts_anew(worker: Any, tmp_path: Path) -> None:
    worker.begin(["--version"], Path("said"))
    assert ended(worker) == 0
    worker._process.kill()
    assert ended(worker) != 0
    worker.begin(["--version"], Path("said"))
    assert ended(worker) == 0

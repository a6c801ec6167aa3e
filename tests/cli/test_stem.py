"""Workers that a stem forks are workers like those that are started by themselves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ringfence.cli import stem as stems
from ringfence.cli.stem import Stem
from ringfence.cli.sweep_commands import PROGRAM
from ringfence.sweep.worker import Worker

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="workers are started by themselves here")
Endless = tuple[list[str], Path]
CERTIFY = ["certify", "--sigma", "0.5", "--limit", "1", "--n", "100", "--batch", "100", "--no-check", "--device", "cpu"]


@pytest.fixture(scope="module")
def stem() -> Iterator[Stem]:
    with closing(Stem()) as found:
        yield found


def ran(worker: Worker, folder: Path, *words: str) -> int:
    worker.begin([[*CERTIFY, *words]], folder, Path("log"))
    while (code := worker.code()) is None:
        time.sleep(0.02)
    return code


def test_they_run_command_after_command_and_end_when_nobody_speaks(stem: Stem, tmp_path: Path) -> None:
    two = [Worker(PROGRAM, 2, stem) for _ in range(2)]
    for number, worker in enumerate(two):
        assert ran(worker, tmp_path, "--out", f"run-{number}") == 0, (tmp_path / "log").read_text()
        assert (tmp_path / f"run-{number}" / "summary.json").is_file()
        assert ran(worker, tmp_path, "--no-such-option") == 2
    assert "no-such-option" in (tmp_path / "log").read_text()
    processes = [worker._process for worker in two]
    assert [worker.end() for worker in two] == [0, 0]
    assert all(isinstance(one, stems.Offshoot) and one.wait(0) == 0 for one in processes)


def test_one_that_died_says_so_and_another_takes_its_place(stem: Stem, tmp_path: Path, endless: Endless) -> None:
    worker = Worker(PROGRAM, 1, stem)
    worker.begin([[*CERTIFY, *endless[0]]], tmp_path, Path("log"))
    process = worker._process
    assert isinstance(process, stems.Offshoot)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0)
    process.kill()
    while (code := worker.code()) is None:
        time.sleep(0.02)
    assert code == -signal.SIGKILL
    assert ran(worker, tmp_path, "--out", "after") == 0
    worker.end()


def test_one_that_is_busy_is_interrupted(stem: Stem, tmp_path: Path, endless: Endless) -> None:
    worker = Worker(PROGRAM, 1, stem)
    worker.begin([[*CERTIFY, *endless[0]]], tmp_path, Path("log"))
    while not endless[1].exists():
        assert worker.code() is None, (tmp_path / "log").read_text()
        time.sleep(0.02)
    assert worker.end() == 130
    assert "stopped by Ctrl-C" in (tmp_path / "log").read_text()


def test_without_a_stem_workers_start_by_themselves(tmp_path: Path) -> None:
    gone = Stem()
    gone.close()
    worker = Worker(PROGRAM, 1, gone)
    assert ran(worker, tmp_path, "--no-such-option") == 2
    assert isinstance(worker._process, subprocess.Popen)
    worker.end()


def test_an_answer_that_nobody_waited_for_is_not_taken_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    mine = Stem()
    worker = Worker(PROGRAM, 1, mine)
    assert ran(worker, tmp_path, "--no-such-option") == 2
    with monkeypatch.context() as changed:
        changed.setattr(socket, "recv_fds", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mine.worker(tmp_path, {})
    assert worker.end() == 1, "nobody knows how it ended"
    with pytest.raises(OSError, match="Bad file descriptor"):
        mine.worker(tmp_path, {})
    mine.close()


def test_files_that_a_network_left_open_are_whole(stem: Stem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.sweep.worker.LEAVING", 300.0)  # a busy machine may need more than a few seconds
    (tmp_path / "net.py").write_text(
        "file = open('file', 'w')\nfile.write('all of it')\ndef make(): raise ValueError\n"
    )
    worker = Worker(PROGRAM, 1, stem)
    assert ran(worker, tmp_path, "--model", "net.py:make", "--out", "run") != 0
    worker.end()
    assert (tmp_path / "file").read_text() == "all of it"


def test_they_find_what_others_find(stem: Stem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    (tmp_path / "net.py").write_text(
        "import os, sys, torch\n"
        "def make():\n"
        "    print(os.environ['RINGFENCE_ZOO'], os.environ['TERM'], sys.path[0], torch.get_num_threads())\n"
        "    raise SystemExit(1)\n"
    )
    told = []
    for one in (stem, None):
        worker = Worker(PROGRAM, 3, one)
        assert ran(worker, tmp_path, "--model", "net.py:make", "--out", "run") != 0
        told.append((tmp_path / "log").read_text().splitlines()[0])
        worker.end()
    assert told[0] == told[1]
    assert told[0] == f"zoo dumb {tmp_path} 2"


def test_where_cuda_was_touched_nothing_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Touched:
        def cuDeviceGetCount(self, count: object) -> int:
            return 0

    monkeypatch.setattr(stems.ctypes, "CDLL", lambda name: Touched())
    assert not stems.may_fork()
    Touched.cuDeviceGetCount = lambda self, count: stems.NOT_INITIALIZED  # type: ignore[method-assign]
    assert stems.may_fork()

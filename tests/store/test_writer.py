from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from configs import altered, part_paths

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.store import RecordWriter, RunConfig, RunFolder

Make = Callable[..., Record]


@pytest.fixture
def run(config: RunConfig, tmp_path: Path) -> RunFolder:
    return RunFolder.create_or_resume(tmp_path / "run", altered(config, {"lanes": ["a"]}))


@pytest.fixture
def make_record(run: RunFolder, make_record: Make) -> Make:
    return partial(make_record, config_hash=run.config.digest)


def test_a_part_is_written_when_enough_records_are_held(run: RunFolder, make_record: Make) -> None:
    with RecordWriter(run, records=4, seconds=1e9) as writer:
        for i in range(10):
            writer.add([make_record(i)])
        assert len(part_paths(run.path / "parts")) == 2
    assert len(part_paths(run.path / "parts")) == 3
    assert run.done_ids() == set(range(10))


def test_a_part_is_written_when_time_has_passed(
    run: RunFolder, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with RecordWriter(run) as writer:
        now = 1.9
        writer.add([make_record(1)])
        assert run.done_ids() == set()
        now = 2.1
        writer.add([make_record(2)])
        assert run.done_ids() == {1, 2}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_what_is_held_is_written_however_the_block_ends(
    run: RunFolder, make_record: Make, error: type[BaseException]
) -> None:
    def block() -> None:
        with RecordWriter(run) as writer:
            writer.add([make_record(1)])
            raise error

    with pytest.raises(error):
        block()
    assert run.done_ids() == {1}


def test_an_empty_block_writes_nothing(run: RunFolder) -> None:
    with RecordWriter(run):
        pass
    assert part_paths(run.path / "parts") == []


def test_a_full_disk_loses_nothing_that_was_written(
    run: RunFolder, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def block() -> None:
        with RecordWriter(run, records=1) as writer:
            writer.add([make_record(1)])
            monkeypatch.setattr(os, "fsync", full)
            writer.add([make_record(2)])

    with pytest.raises(StoreError, match=r"No space left on device\. Free some space.*same command continues"):
        block()
    assert run.done_ids() == {1}
    assert [path.name for path in (run.path / "parts").iterdir()] == ["part-000000.parquet"]


def test_records_that_failed_are_written_once_there_is_room(
    run: RunFolder, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with RecordWriter(run, records=1) as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StoreError):
                writer.add([make_record(1)])
        writer.add([make_record(2)])
    assert run.done_ids() == {1, 2}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_named(run: RunFolder, make_record: Make) -> None:
    run.path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="may write to"), RecordWriter(run) as writer:
            writer.add([make_record(1)])
    finally:
        run.path.chmod(0o700)


@pytest.mark.skipif(os.name != "posix", reason="locks are POSIX")
def test_a_second_writer_is_refused(run: RunFolder) -> None:
    with RecordWriter(run), pytest.raises(StoreError, match="one writer"), RecordWriter(RunFolder.open(run.path)):
        pass
    with RecordWriter(run):
        pass


KILLED = """
import sys
from ringfence.record import Record
from ringfence.store import RecordWriter, RunFolder
run = RunFolder.open(sys.argv[1])
with RecordWriter(run, records=2, seconds=1e9) as writer:
    for i in range(10**9):
        ours = {"config_hash": run.config.digest}
        writer.add([Record(i, "a", 0, 0, 0.5, 0.9, 0.1, 0.001, "fixed", True, 0, 1, 1, 0.0, **ours)])
        print(i, flush=True)
"""


def test_a_killed_process_loses_only_what_it_held(run: RunFolder, make_record: Make) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [int(process.stdout.readline()) for _ in range(25)]
    process.send_signal(signal.SIGKILL)
    added = seen[-1] + 1 + len(process.stdout.read().split())
    process.stdout.close()
    process.wait()
    done = run.done_ids()
    assert done == set(range(len(done)))
    assert len(done) >= added - 2
    assert run.damaged == []
    (run.path / "parts" / ".writing-1-part-000000.parquet").write_bytes(b"half")
    with RecordWriter(run) as writer:
        writer.add([make_record(len(done))])
    assert run.done_ids() == set(range(len(done) + 1))
    assert not list(run.path.rglob(".writing-*"))

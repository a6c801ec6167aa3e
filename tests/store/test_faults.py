"""A disk that refuses at any moment: records identical, nothing lost, nothing doubled."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.store import InputInfo, RecordWriter, RunConfig, RunFolder

Make = Callable[..., Record]
INPUTS = 6
CALLS = ("fsync", "replace", "link", "rename", "unlink")
"""What reaches the disk: every one of them may fail."""


FOR_GOOD = 10**6


class Killed(BaseException):
    """The process ends here: nothing after it is written."""


class Disk:
    """Counts calls, and lets the one with a number fail, and as many that follow as it takes."""

    def __init__(
        self, patch: pytest.MonkeyPatch, at: int = 0, error: BaseException | None = None, times: int = 0
    ) -> None:
        self.calls, self._failing, self._error = 0, range(at, at + times), error
        for name in CALLS:
            patch.setattr(os, name, self._refusing(getattr(os, name)))

    def _refusing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any, **options: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if self._error and number in self._failing:
                raise self._error
            return None if call.__name__ == "fsync" else call(*arguments, **options)  # only power loss would notice

        return refuse


@pytest.fixture
def session(config: RunConfig, make_record: Make) -> Callable[[Path], None]:
    """One session of a run as the engine makes it: parts, a new plan, joined parts, inputs, summary."""

    def run(path: Path) -> None:
        found = RunFolder.create_or_resume(path, config)
        with RecordWriter(found, records=4, seconds=1e9) as writer:
            found.note_inputs(INPUTS, {})
            done = found.done_ids()
            if not found.forward_plans():
                found.add_forward_plan({"batch": 20})
            for one in range(INPUTS):
                if one not in done:
                    writer.add([make_record(one, lane) for lane in config.classifier.names])
            writer.flush()
            found.set_damaged_aside()
            found.merge_parts()
            found.write_inputs([InputInfo(one, None) for one in range(INPUTS)])
            found.write_summary({"acr": 0.5})

    return run


def rows(path: Path) -> list[dict[str, Any]]:
    """Every row of every part that counts, doubles included, in silence about what is still missing."""
    with warnings.catch_warnings(action="ignore"):
        run = RunFolder.open(path)
        found = [row for table in run.tables() for row in table.to_pylist()]
    assert run.problems == {}  # no moment leaves a folder that its manifest does not describe
    return sorted(found, key=lambda row: (row["input_id"], row["lane"]))


def moments(session: Callable[[Path], None], path: Path) -> int:
    """How often a session reaches the disk."""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        session(path)
    return disk.calls


@pytest.mark.parametrize(
    ("error", "times"),
    [
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), FOR_GOOD, id="full", marks=pytest.mark.slow),
        pytest.param(OSError(errno.EIO, "Input/output error"), 1, id="once", marks=pytest.mark.slow),
        pytest.param(OSError(errno.EIO, "Input/output error"), 2, id="twice"),
        pytest.param(OSError(errno.ESTALE, "Stale file handle"), FOR_GOOD, id="stale", marks=pytest.mark.slow),
        pytest.param(Killed(), FOR_GOOD, id="killed"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*continues in another environment")
def test_a_failure_at_any_write_loses_and_doubles_nothing(
    session: Callable[[Path], None], tmp_path: Path, error: BaseException, times: int
) -> None:
    count = moments(session, tmp_path / "whole")
    expected = rows(tmp_path / "whole")
    assert len(expected) == 2 * INPUTS
    assert count > 30
    for at in range(count):
        path = tmp_path / f"run-{at}"
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, at, error, times)
            failed = None
            try:
                session(path)
            except (StoreError, Killed) as caught:
                failed = caught
        before = rows(path) if (path / "config.json").exists() else []
        assert before == [one for one in expected if one in before], at  # what is there is right, and there once
        if failed is None:
            assert before == expected, at
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch)
            session(path)
        assert rows(path) == expected, at
        with warnings.catch_warnings(action="error"):
            again = RunFolder.open(path)
            assert again.check() == {}
            assert len(again.read()) == 2 * INPUTS
        left = {file.name for file in path.rglob("*") if file.name.startswith((".writing", "damaged"))}
        assert not left, at


WRITES = """
import sys
import numpy as np
from ringfence.record import Record, StageTally
from ringfence.store import RecordWriter, RunFolder
run = RunFolder.open(sys.argv[1])
with RecordWriter(run, records=2, seconds=1e9) as writer:
    done = run.done_ids()
    print("begun", flush=True)
    left = (i for i in range(int(sys.argv[2])) if i not in done)
    for count, i in enumerate(left):
        if count == 40:
            sys.stdin.readline()  # whoever is to be killed waits here, so that no kill comes too late for all
        tally = StageTally(0, 0, 10, {"votes": 10 * np.eye(11, dtype=np.int64)[i % 11]})
        ours = {"config_hash": run.config.digest, "stages": (tally,)}
        writer.add([Record(i, lane, 0, 0, i / 7, 0.9, 0.1, 0.001, "fixed", True, 0, 1, 1, 0.0, **ours)
                    for lane in run.config.classifier.names])
        print(i, flush=True)
    writer.flush()
    run.merge_parts()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills are POSIX")
def test_killed_at_twenty_random_moments(config: RunConfig, tmp_path: Path) -> None:
    limit, rng = 400, np.random.default_rng(0)

    def finish(path: Path) -> list[dict[str, Any]]:
        command, nothing = [sys.executable, "-c", WRITES, str(path), str(limit)], subprocess.DEVNULL
        subprocess.run(command, check=True, stdin=nothing, stdout=nothing)
        return rows(path)

    expected = finish(RunFolder.create_or_resume(tmp_path / "whole", config).path)
    path = RunFolder.create_or_resume(tmp_path / "run", config).path
    counts = [0]
    for _ in range(20):
        command = [sys.executable, "-c", WRITES, str(path), str(limit)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdout is not None
            for _ in range(int(rng.integers(1, 30))):  # by what it has done, not by the clock of a busy machine
                process.stdout.readline()
            time.sleep(float(rng.uniform(0, 0.005)))  # anywhere within a write
            process.send_signal(signal.SIGKILL)
        found = rows(path)
        assert found == [one for one in expected if one in found]
        counts.append(len(found))
    assert counts == sorted(counts)
    assert any(0 < count < len(expected) for count in counts)
    assert finish(path) == expected

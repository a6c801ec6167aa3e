"""The lock comes before any write: a second command never touches what a live one works on."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from configs import altered

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.store import RecordWriter, RunConfig, RunFolder, StoreWarning
from ringfence.store.atomic import lock, locked, writer_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks and pipes are POSIX")
Make = Callable[..., Record]


def other(config: RunConfig) -> RunConfig:
    return altered(config, {"sigma": 2 * config.noise.sigma})


def test_a_live_run_keeps_its_settings(config: RunConfig, tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path / "run", config)
    run.add_forward_plan({"batch": 20})
    with RecordWriter(run):
        before = {file.name: file.read_bytes() for file in run.path.iterdir()}
        with pytest.raises(StoreError, match=f"one writer; got process {os.getpid()} on .* writing since 20"):
            RunFolder.create_or_resume(run.path, other(config))
        assert {file.name: file.read_bytes() for file in run.path.iterdir()} == before


def test_a_run_whose_settings_were_replaced_before_it_began_does_not_write(config: RunConfig, tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path / "run", config)
    RunFolder.create_or_resume(run.path, other(config))
    with pytest.raises(StoreError, match=r"sigma: 0\.5 now, 1\.0 in the run"), RecordWriter(run):
        pass
    with RecordWriter(RunFolder.create_or_resume(run.path, other(config))):
        pass


@pytest.mark.parametrize("what", ["lock", "folder"])
def test_who_lost_his_lock_writes_nothing_more(config: RunConfig, make_record: Make, tmp_path: Path, what: str) -> None:
    """A lock that was taken for a stale one and removed, or a folder that was moved: then another process can begin."""
    alone = altered(config, {"lanes": ["a"]})
    run = RunFolder.create_or_resume(tmp_path / "run", alone)

    def lose() -> None:
        with RecordWriter(run, records=1) as writer:
            writer.add([make_record(1, config_hash=alone.digest)])
            (run.path / "lock").unlink() if what == "lock" else run.path.rename(tmp_path / "moved")
            with RecordWriter(RunFolder.create_or_resume(run.path, alone)):
                writer.add([make_record(2, config_hash=alone.digest)])

    with pytest.raises(StoreError, match="lock: must stay while a process writes there; got another one, or none"):
        lose()
    assert RunFolder.open(run.path).done_ids() == ({1} if what == "lock" else set())


def test_a_folder_that_nobody_may_look_into_is_told(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 300)  # as root may look anywhere, a name that the system refuses as well
    with pytest.raises(StoreError, match="lock: must be writable; got "):
        lock(folder)
    assert writer_of(folder) is None


def test_a_strangers_folder_gets_not_even_a_lock(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="empty folder"):
        RunFolder.create_or_resume(tmp_path, config)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_stands_in_the_place_of_a_part_is_named_and_left_out(
    config: RunConfig, make_record: Make, tmp_path: Path, make: Callable[[Path], Any]
) -> None:
    alone = altered(config, {"lanes": ["a"]})
    run = RunFolder.create_or_resume(tmp_path / "run", alone)
    run.append([make_record(1, config_hash=alone.digest)])
    make(run.path / "parts" / "part-000001.parquet")
    with pytest.warns(StoreWarning, match=r"part-000001\.parquet cannot be read \(not a file\)"):
        assert run.done_ids() == {1}
    assert run.damaged == ["part-000001.parquet"]
    run.append([make_record(2, config_hash=alone.digest)])
    run.set_damaged_aside()
    run.merge_parts()
    assert RunFolder.open(run.path).done_ids() == {1, 2}


@pytest.mark.parametrize("name", ["config.json", "lock", "inputs.parquet", "summary.json"])
def test_no_pipe_is_waited_for(config: RunConfig, tmp_path: Path, name: str) -> None:
    run = RunFolder.create_or_resume(tmp_path / "run", config)
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name)

    def use() -> None:
        found = RunFolder.open(run.path)
        found.inputs()
        found.summary()
        with RecordWriter(found):
            pass

    with pytest.raises(StoreError, match=name):
        use()


def test_what_changed_about_model_and_data_is_named(config: RunConfig, make_record: Make, tmp_path: Path) -> None:
    def hashes(weights: str, data: str) -> RunConfig:
        return altered(config, {"weights_hash": weights, "data_hash": data})

    began = hashes("v2 weights:1 ours:1 code:1", "v2 inputs:1 labels:1 index:1")
    RunFolder.create_or_resume(tmp_path / "run", began).append([make_record(0, config_hash=began.digest)])
    with pytest.raises(
        StoreError, match=r"the model changed: model code; data\.digest: the data changed: labels, index"
    ):
        RunFolder.create_or_resume(
            tmp_path / "run", hashes("v2 weights:1 ours:1 code:2", "v2 inputs:1 labels:2 index:2")
        )


def test_a_run_of_the_earlier_scheme_goes_on_where_its_digests_said_all(
    config: RunConfig, make_record: Make, tmp_path: Path
) -> None:
    old = altered(config, {"weights_hash": "1" * 32, "data_hash": "2" * 32})
    RunFolder.create_or_resume(tmp_path / "run", old).append([make_record(0, config_hash=old.digest)])
    same = {"weights_hash": f"v2 weights:1 ours:1 v1:{'1' * 32}", "data_hash": f"v2 inputs:1 v1:{'2' * 32}"}
    run = RunFolder.create_or_resume(tmp_path / "run", altered(config, same))
    assert run.config == old  # so that its records keep their config_hash
    with pytest.raises(StoreError, match="the model cannot be compared: the run is of an earlier version"):
        RunFolder.create_or_resume(
            tmp_path / "run", altered(config, {**same, "weights_hash": "v2 weights:1 ours:1 code:1"})
        )


def test_a_disk_without_locks_is_refused_unless_the_user_says_he_keeps_to_one_process(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(StoreError, match=r"disk with locks.*No locks available.*`unlocked`"):
        RunFolder.create_or_resume(tmp_path / "run", config)
    with pytest.warns(StoreWarning, match="keep to one process"):
        run = RunFolder.create_or_resume(tmp_path / "run", config, unlocked=True)
    with warnings.catch_warnings(action="error"), RecordWriter(run):  # told once
        pass
    with pytest.raises(StoreError, match="disk with locks"), RecordWriter(RunFolder.open(run.path)):
        pass


def test_who_only_looks_keeps_nobody_from_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a busy machine may stop him for long just when he has the lock."""
    import fcntl

    waited = list[float]()
    with locked(tmp_path):
        pass
    with (tmp_path / "lock").open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)

        def look_on(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 200:
                fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr("ringfence.store.atomic.time.sleep", look_on)
        with locked(tmp_path):
            assert len(waited) == 200


def test_the_lock_says_who_holds_it_and_nonsense_in_it_is_no_obstacle(tmp_path: Path) -> None:
    for content in (b"", b"[]", b"\xff" * 5000, b"[" * 100_000):
        (tmp_path / "lock").write_bytes(content)
        with locked(tmp_path):
            held = json.loads((tmp_path / "lock").read_text())
            assert held["pid"] == os.getpid()
            assert held.keys() == {"host", "pid", "start"}
            (tmp_path / "lock").write_bytes(content)
            with pytest.raises(StoreError, match="another process writing"), locked(tmp_path):
                pass

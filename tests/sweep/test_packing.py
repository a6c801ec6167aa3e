"""What travels: nothing needed is missing, nothing else goes along, nothing is too large."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packed_files import SWEEP, names, pack, put

from ringfence.errors import StoreError
from ringfence.store import RunFolder
from ringfence.store.atomic import StoreWarning
from ringfence.store.guarded import Guarded
from ringfence.store.manifest import ABSENT, SEAL, Entry, digest_of
from ringfence.sweep import Job, Limits, Packing, Sweep, SweepFolder, packing, unpack
from ringfence.verification import verify

Read = Callable[..., Sweep]


def test_finished_members_travel_without_checkpoints_and_others_with_theirs(
    sweep: Read, work: SweepFolder, tmp_path: Path
) -> None:
    jobs = sweep(SWEEP).jobs
    (work.path / "jobs").mkdir()
    work.end(jobs[1], 1.0)
    found = names(pack(jobs[:3], jobs, tmp_path / "out"))
    weights = ["two/final-0", "pair/final-0", "pair/final-1", "half/final-0"]
    logs = ["two/member-0", "two/member-1", "pair/joint", "half/joint"]
    expected = [f"{one}.safetensors" for one in weights] + [f"{one}/log.csv" for one in logs]
    expected += [f"{training}/config.json" for training in ("two", "pair", "half")]
    unfinished = ["two/member-1", "half/joint"]
    expected += [f"{one}/{name}" for one in unfinished for name in ("last.json", "epoch-00003.safetensors")]
    assert found == sorted([f"zoo/z/{one}" for one in expected] + ["jobs/train-pair.json"])


def test_what_is_not_done_travels_with_what_it_needs(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    jobs = sweep(SWEEP).jobs
    (work.path / "jobs").mkdir()
    run, later = jobs[4:]
    work.end(run, 1.0)
    (work.path / "jobs" / "certify-later.log").symlink_to("certify-run.json")
    found = names(pack([run, later], jobs, tmp_path / "out"))
    assert {one for one in found if one.startswith("runs")} == {"runs/run/parts/part-1", "runs/run/summary.json"}
    assert "zoo/z/two/final-0.safetensors" in found
    assert not any(one.startswith("zoo/z/other") for one in found)
    there = sweep(SWEEP, work=tmp_path / "again")
    assert unpack(tmp_path / "out", there.jobs) == []
    file = "zoo/z/two/member-1/epoch-00003.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (work.path / file).read_bytes()
    assert there.jobs[4].done


def test_no_archive_is_too_large_unless_one_file_is(sweep: Read, tmp_path: Path) -> None:
    jobs = sweep("certify: [{name: run}]").jobs
    work = jobs[0].work
    for i in range(7):
        put(work.path / "runs" / "run" / f"part-{i}", 30_000)
    put(work.path / "runs" / "run" / "big", 150_000)
    put(tmp_path / "out" / "work-9.tgz")  # of a call before
    archives = pack(jobs, jobs, tmp_path / "out", 100_000 / 2**20)
    assert len(names(archives)) == 8
    assert sorted(archives) == sorted((tmp_path / "out").iterdir())
    sizes = sorted(archive.stat().st_size for archive in archives)
    assert len(sizes) == 4  # three, three and one of the small ones, and the big one
    assert sizes[-2] <= 100_000 < sizes[-1]


def test_what_finds_no_room_is_told_and_what_is_done_goes_first(sweep: Read, tmp_path: Path) -> None:
    jobs = sweep("certify: [{name: half}, {name: done}, {name: small}]").jobs
    for job, size in zip(jobs, (50_000, 30_000, 20_000), strict=True):
        put(job.work.path / job.out / "part", size)
    (jobs[0].work.path / "jobs").mkdir()
    jobs[1].work.end(jobs[1], 1.0)
    mib = 1 / 2**20
    for limits in (Limits(60_000 * mib, files=1), Limits(total=60_000 * mib)):
        packed = Packing(jobs, jobs, tmp_path / "out", limits).pack()
        assert packed.left_out == ["certify half"]
        assert [one for one in names(packed.archives) if "runs" in one] == ["runs/done/part", "runs/small/part"]


def test_packing_goes_on_meanwhile_and_leaves_nothing_half_written(sweep: Read, tmp_path: Path) -> None:
    jobs, out = sweep("certify: [{name: run}]").jobs, tmp_path / "out"
    first = put(jobs[0].work.path / jobs[0].out / "part-1")
    with Packing(jobs, jobs, out).meanwhile(0.01):
        while not (out / "work-1.tgz").exists():
            time.sleep(0.01)
        put(first.with_name("part-2"))
        while "runs/run/part-2" not in names([out / "work-1.tgz"]):
            time.sleep(0.01)
        assert [one.name for one in out.iterdir()] == ["work-1.tgz"]
    assert not list(tmp_path.glob(".writing*"))


def test_what_a_killed_packing_left_is_cleared_away(sweep: Read, tmp_path: Path) -> None:
    jobs = sweep("certify: [{name: run}]").jobs
    put(jobs[0].work.path / jobs[0].out / "part-1")
    left, other = put(tmp_path / ".writing-out-x1" / "work-1.tgz"), put(tmp_path / ".writing-others-x1" / "work-1.tgz")
    pack(jobs, jobs, tmp_path / "out")
    assert not left.parent.exists()
    assert other.exists()


def test_files_of_a_job_are_of_one_moment(sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends while it is read must not travel with its summary and without its last part."""
    job = sweep("certify: [{name: run}]").jobs[0]
    part = put(job.work.path / job.out / "part-1")
    packing, read, changes = Packing([job], [job], tmp_path / "out"), Path.read_bytes, iter(range(3))

    def read_late(file: Path) -> bytes:
        content = read(file)
        if file == part and next(changes, None) is not None:
            put(part.with_name("part-0")), put(part.with_name("summary.json"))
        return content

    monkeypatch.setattr(Path, "read_bytes", read_late)
    assert names(packing.pack().archives) == [f"runs/run/{name}" for name in ("part-0", "part-1", "summary.json")]
    changes = iter(range(10**6))
    assert len(names(packing.pack().archives)) == 3, "of one that never rests, what it was before"


def test_pictures_of_inputs_stay_behind_if_asked_and_the_run_is_whole(
    sweep: Read, tmp_path: Path, fake_run: Callable[..., RunFolder]
) -> None:
    (job,) = sweep("certify: [{name: run}]").jobs
    made = fake_run(job.work.path / job.out)
    (job.work.path / "jobs").mkdir()
    job.work.end(job, 1.0)
    sizes = []
    for pictures in (True, False):
        Packing([job], [job], tmp_path / "out", pictures=pictures).pack()
        (there,) = sweep("certify: [{name: run}]", work=tmp_path / f"{pictures}").jobs
        assert unpack(tmp_path / "out", [there]) == []
        run = RunFolder.open(there.work.path / there.out)
        assert verify(run) == []
        assert [one.name for one in run.inputs()] == [one.name for one in made.inputs()]
        assert all((one.thumbnail is not None) == pictures for one in run.inputs())
        sizes.append((run.path / "inputs.parquet").stat().st_size)
    assert sizes[1] < sizes[0]
    assert verify(made) == [], "what was packed is as it was"


@pytest.mark.parametrize("damaged", ["config.json", "manifest.json", "inputs.parquet"])
def test_a_damaged_run_travels_with_its_pictures(
    damaged: str, sweep: Read, tmp_path: Path, fake_run: Callable[..., RunFolder]
) -> None:
    (job,) = sweep("certify: [{name: run}]").jobs
    made = fake_run(job.work.path / job.out)
    (made.path / damaged).write_bytes(b"nonsense")
    before = {one.name: one.read_bytes() for one in made.path.glob("*.*")}
    Packing([job], [job], tmp_path / "out", pictures=False).pack()
    (there,) = sweep("certify: [{name: run}]", work=tmp_path / "there").jobs
    assert unpack(tmp_path / "out", [there]) == []
    assert {one.name: one.read_bytes() for one in (there.work.path / there.out).glob("*.*")} == before


def test_what_a_kill_left_does_not_travel_without_the_manifest_that_knows_it(
    sweep: Read, tmp_path: Path, fake_run: Callable[..., RunFolder]
) -> None:
    """A run may be packed while its parts are being put together."""
    (job,) = sweep("certify: [{name: run}]").jobs
    run = fake_run(job.work.path / job.out)
    content = (run.path / "parts" / "part-000000.parquet").read_bytes()
    files = Guarded(run.path)
    name = files._next(files.manifest())
    files.manifest().with_file(name, Entry(blake2b=digest_of(content), earlier=ABSENT)).save(run.path)
    files._create(name, content)
    assert verify(run) == []
    (job.work.path / "jobs").mkdir()
    job.work.end(job, 1.0)
    Packing([job], [job], tmp_path / "out", pictures=False).pack()
    (there,) = sweep("certify: [{name: run}]", work=tmp_path / "there").jobs
    assert unpack(tmp_path / "out", [there]) == []
    assert verify(RunFolder.open(there.work.path / there.out)) == []


def test_a_sealed_run_travels_as_it_was_sealed(sweep: Read, tmp_path: Path, fake_run: Callable[..., RunFolder]) -> None:
    (job,) = sweep("certify: [{name: run}]").jobs
    made = fake_run(job.work.path / job.out)
    (made.path / SEAL).write_text("{}")
    before = {one.name: one.read_bytes() for one in made.path.glob("*.*")}
    Packing([job], [job], tmp_path / "out", pictures=False).pack()
    (there,) = sweep("certify: [{name: run}]", work=tmp_path / "there").jobs
    assert unpack(tmp_path / "out", [there]) == []
    assert {one.name: one.read_bytes() for one in (there.work.path / there.out).glob("*.*")} == before


def test_what_is_done_is_read_once(sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = sweep("certify: [{name: done}, {name: half}]").jobs
    for job in jobs:
        put(job.work.path / job.out / "part")
    (jobs[0].work.path / "jobs").mkdir()
    jobs[0].work.end(jobs[0], 1.0)
    read: list[str] = []

    def snapshot(job: Job, plainly: Callable[[Job], Any] = packing._snapshot) -> Any:
        read.append(job.name)
        return plainly(job)

    monkeypatch.setattr(packing, "_snapshot", snapshot)
    made = Packing(jobs, jobs, tmp_path / "out")
    assert names(made.pack().archives) == names(made.pack().archives)
    assert read == ["done", "half", "half"]


def test_a_disk_that_was_full_for_a_while_ends_no_packing(
    sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread died with the first refusal, and nothing that was made afterwards was packed until the end."""
    jobs, out = sweep("certify: [{name: run}]").jobs, tmp_path / "out"
    put(jobs[0].work.path / jobs[0].out / "part-1")
    write, full = packing._write, iter(range(2))

    def write_late(archive: Path, *more: Any) -> None:
        if next(full, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(archive, *more)

    monkeypatch.setattr(packing, "_write", write_late)

    def pack_in_the_end() -> None:
        with Packing(jobs, jobs, out).meanwhile(0.01):
            while not (out / "work-1.tgz").exists():
                time.sleep(0.01)

    with pytest.warns(StoreWarning, match=r"not packed: .*out: must be writable; got No space left on device\. Free"):
        pack_in_the_end()


def test_old_archives_stay_where_there_is_no_room_for_new_ones(
    sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = sweep("certify: [{name: run}]").jobs
    put(jobs[0].work.path / jobs[0].out / "part-1")
    (before,) = pack(jobs, jobs, tmp_path / "out")
    content = before.read_bytes()

    def full(archive: Path, *_: Any) -> None:
        archive.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(packing, "_write", full)
    with pytest.raises(StoreError, match=r"out: must be writable; got No space left on device\. Free some space"):
        pack(jobs, jobs, tmp_path / "out")
    assert before.read_bytes() == content
    assert not list(tmp_path.glob(".writing*"))


def test_a_place_that_cannot_be_packed_into_is_refused_before(sweep: Read, tmp_path: Path) -> None:
    jobs, file = sweep("certify: [{name: run}]").jobs, put(tmp_path / "file")
    for out in (file, file / "below"):
        with pytest.raises(StoreError, match=f"{out}: must be writable"):
            Packing(jobs, jobs, out).check()
    Packing(jobs, jobs, tmp_path / "out").check()
    assert list((tmp_path / "out").iterdir()) == []
    assert not list(tmp_path.glob(".writing*"))


@pytest.mark.parametrize("config", ["{}", "[]", "null", "{", '{"members": null}'])
def test_a_training_whose_config_is_damaged_travels_as_it_is(
    sweep: Read, work: SweepFolder, tmp_path: Path, config: str
) -> None:
    jobs = sweep(SWEEP).jobs
    (work.path / "zoo" / "z" / "pair" / "config.json").write_text(config)
    found = names(pack(jobs, jobs, tmp_path / "out"))
    assert {"zoo/z/pair/joint/last.json", "zoo/z/other/final-0.safetensors"} <= set(found)


def test_a_job_that_cannot_be_read_is_told_and_others_travel(
    sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = sweep("certify: [{name: broken}, {name: run}]").jobs
    broken, _ = (put(job.work.path / job.out / "part") for job in jobs)
    read = Path.read_bytes

    def read_but_one(file: Path) -> bytes:
        if file == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", read_but_one)
    packed = Packing(jobs, jobs, tmp_path / "out").pack()
    assert packed.unread == ["certify broken"]
    assert names(packed.archives) == ["runs/run/part"]

"""What travels: nothing needed is missing, nothing else goes along, nothing is too large."""

from __future__ import annotations

import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import DataError
from ringfence.store import RunFolder
from ringfence.store.guarded import Guarded
from ringfence.store.manifest import ABSENT, SEAL, Entry, digest_of
from ringfence.sweep import Job, Limits, Packing, Sweep, SweepFolder, packing, unpack
from ringfence.verification import verify

Read = Callable[..., Sweep]
SWEEP = """
zoo: z
train: [{name: two}, {name: pair}, {name: half}, {name: other}]
certify: [{name: run, settings: {x: zoo/z/other}}, {name: later, settings: {x: zoo/z/two}}]
"""


def put(path: Path, size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))  # does not compress
    return path


def pack(chosen: Sequence[Job], every: Sequence[Job], out: Path, mib: float = 14.0) -> list[Path]:
    return Packing(chosen, every, out, Limits(mib)).pack().archives


def names(archives: list[Path]) -> list[str]:
    found = []
    for archive in archives:
        with tarfile.open(archive) as tar:
            found += [name.removeprefix("sweep/") for name in tar.getnames()]
    return sorted(found)


@pytest.fixture
def work(tmp_path: Path) -> SweepFolder:
    """Two independent members, one finished; a finished pair trained together, and one that is half exported; a run."""
    root = tmp_path / "work"
    zoo = root / "zoo" / "z"
    for training in ("two", "pair", "half", "other"):
        put(zoo / training / "config.json").write_text(json.dumps({"members": 2}))
        put(zoo / training / "final-0.safetensors")
    put(zoo / "pair" / "final-1.safetensors")
    for folder in ("two/member-0", "two/member-1", "pair/joint", "half/joint"):
        for name in ("log.csv", "last.json", "epoch-00003.safetensors", ".writing-epoch-00004"):
            put(zoo / folder / name)
    for name in ("parts/part-1", "lock", "summary.json"):
        put(root / "runs" / "run" / name)
    return SweepFolder(root)


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


def test_unpacking_leaves_nothing_of_an_older_state(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    jobs, older = sweep(SWEEP).jobs, SweepFolder(tmp_path / "older")
    stale = [put(older.path / "runs" / "run" / "parts" / "part-0"), put(older.path / "zoo/z/two/member-0/last.json")]
    kept = [put(older.path / "runs" / "later" / "parts" / "part-0"), put(older.path / "data" / "of a user")]
    for folder, name in ((work, "certify-run.json"), (older, "elsewhere")):
        (folder.path / "jobs").mkdir()
        (folder.path / "jobs" / "certify-run.log").symlink_to(name)
    work.end(jobs[4], 1.0)
    pack([jobs[0], jobs[4]], jobs, tmp_path / "out")
    theirs = sweep(SWEEP, work=older.path).jobs
    unpack(tmp_path / "out", theirs)
    assert not any(file.exists() for file in stale)
    assert all(file.exists() for file in kept)
    assert sorted(file.name for file in (older.path / "runs" / "run").rglob("*")) == ["part-1", "parts", "summary.json"]
    assert (older.path / "jobs" / "certify-run.log").readlink() == Path("certify-run.json")
    assert sorted(one.name for one in older.path.iterdir()) == ["data", "jobs", "runs", "zoo"]
    broken = put(tmp_path / "out" / "work-2.tgz")
    again = put(older.path / "runs" / "run" / "parts" / "part-2")
    with pytest.raises(DataError, match=re.escape(str(broken))):
        unpack(tmp_path / "out", theirs)
    assert again.exists()


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


def test_archives_that_are_none_are_refused(sweep: Read, tmp_path: Path) -> None:
    jobs = sweep(SWEEP).jobs
    with pytest.raises(DataError, match=r"no \.tgz"):
        unpack(tmp_path, jobs)
    put(tmp_path / "work-1.tgz", 1000)
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, jobs)
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz") as tar:
        tar.add(put(tmp_path / "file"), arcname="../escaped")
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, jobs)
    assert not (tmp_path / "escaped").exists()


@pytest.mark.parametrize(
    "name",
    ["sweep/here/net.py", "sweep/data/a.npz", "sweep/jobs/../here/net.py", "sweep/jobs", "sweep/zoo/z/../../here/n"],
)
def test_archives_change_nothing_but_what_jobs_make(sweep: Read, tmp_path: Path, name: str) -> None:
    """Links of a work folder lead to the user's code and data."""
    jobs = sweep(SWEEP).jobs
    for link in ("here", "data"):
        put(tmp_path / "own" / link / "kept")
        jobs[0].work.path.mkdir(exist_ok=True)
        (jobs[0].work.path / link).symlink_to(tmp_path / "own" / link)
    (tmp_path / "out").mkdir()
    with tarfile.open(tmp_path / "out" / "work-1.tgz", "w:gz") as tar:
        tar.add(put(tmp_path / "file"), arcname=name)
    with pytest.raises(DataError, match="which no job makes"):
        unpack(tmp_path / "out", jobs)
    assert {one.name for one in (tmp_path / "own").rglob("*")} == {"here", "data", "kept"}


@pytest.mark.parametrize(
    ("name", "to"),
    [("zoo/a", ".."), ("jobs/a", "."), ("jobs/a.log", "../b.log"), ("jobs/a.log", ".."), ("runs/a", "b.log")],
)
def test_links_in_archives_lead_to_logs_alone(sweep: Read, tmp_path: Path, name: str, to: str) -> None:
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz") as tar:
        entry = tarfile.TarInfo(f"sweep/{name}")
        entry.type, entry.linkname = tarfile.SYMTYPE, to
        tar.addfile(entry)
    with pytest.raises(DataError, match="which no job makes"):
        unpack(tmp_path, sweep(SWEEP).jobs)


@pytest.mark.parametrize("told", ["null", "3", "[1]", '{"sweep/jobs/train-two.json": "x"}', "[" * 100_000, "{"])
def test_archives_with_nonsense_in_their_header_are_refused(sweep: Read, tmp_path: Path, told: str) -> None:
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz", pax_headers={packing.COUNTS: told}) as tar:
        tar.add(put(tmp_path / "file"), arcname="sweep/zoo/z/two/config.json")
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, sweep(SWEEP).jobs)


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


def test_archives_are_taken_in_once(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    pack(sweep(SWEEP).jobs, sweep(SWEEP).jobs, tmp_path / "out")
    jobs = sweep(SWEEP, work=tmp_path / "there").jobs
    unpack(tmp_path / "out", jobs)
    since = put(tmp_path / "there" / "runs" / "run" / "parts" / "part-2")
    unpack(tmp_path / "out", jobs)
    assert since.exists()
    other = sweep("certify: [{name: a}]", work=tmp_path / "other", sweep="another").jobs
    assert unpack(tmp_path / "out", other) == ["sweep: name its file, too"]


def test_a_sweep_in_outline_is_done_as_far_as_the_sweep_itself(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    """What is unpacked or kept does to the outline what it would do to the folder, and nothing to the folder."""
    pack(sweep(SWEEP).jobs, sweep(SWEEP).jobs, tmp_path / "out")
    there = sweep(SWEEP, work=tmp_path / "there")
    unpack(tmp_path / "out", there.jobs)
    since = put(tmp_path / "there" / "runs" / "later" / "part-0")
    there.work.end(there.jobs[0], 7.0)
    there.work.end(there.jobs[5], 1.0)
    for name in ("half", "other"):
        put(tmp_path / "zoo" / "z" / name / "config.json")
    (tmp_path / "there" / "zoo" / "z" / "other" / "config.json").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file()}
    outline = there.outlined(tmp_path / "outline")
    assert [job.done for job in outline.jobs] == [job.done for job in there.jobs] == [True, *[False] * 4, True]
    assert outline.work.measured(outline.jobs[0]) == 7.0
    unpack(tmp_path / "out", outline.jobs)
    assert (outline.work.path / since.relative_to(tmp_path / "there")).exists(), "they were taken in before"
    zoos = [outline.work.path / "zoo", tmp_path / "zoo"]
    assert [job.name for job in outline.work.adopt(outline.jobs, (), zoos)] == ["other"], "half was begun here"
    assert {path: path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file()} == before


def test_archives_are_unpacked_once_for_all_sweeps(
    sweep: Read, work: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "second" / "runs" / "a" / "part-0")
    jobs = [*sweep(SWEEP).jobs, *sweep("certify: [{name: a}]", work=tmp_path / "second", sweep="another").jobs]
    archives = pack(jobs, jobs, tmp_path / "out", 0.001)
    assert len(archives) > 1
    there = sweep(SWEEP, work=tmp_path / "there").jobs
    there += sweep("certify: [{name: a}]", work=tmp_path / "there, too", sweep="another").jobs
    asked: list[Path] = []

    def extract(
        archive: Path, folder: Path, plainly: Callable[[Path, Path], dict[str, int]] = packing._extract
    ) -> dict[str, int]:
        asked.append(archive)
        return plainly(archive, folder)

    monkeypatch.setattr(packing, "_extract", extract)
    assert unpack(tmp_path / "out", there) == []
    assert asked == sorted(archives)
    assert (tmp_path / "there" / "runs" / "run" / "summary.json").exists()
    assert (tmp_path / "there, too" / "runs" / "a" / "part-0").exists()


def test_a_job_of_which_an_archive_is_missing_is_not_taken_in(sweep: Read, tmp_path: Path) -> None:
    """Its note says that it is done, and a part of what it made is lost."""
    text = "certify: [{name: large}, {name: small}]"
    jobs = sweep(text).jobs
    (jobs[0].work.path / "jobs").mkdir(parents=True)
    for name, size in (("large/part", 30_000), ("large/summary.json", 60_000), ("small/part", 30_000)):
        put(jobs[0].work.path / "runs" / name, size)
    for job in jobs:
        job.work.end(job, 1.0)
    first, second = pack(jobs, jobs, tmp_path / "out", 70_000 / 2**20)
    assert [one for one in names([first]) if "runs" in one] == ["runs/large/part", "runs/small/part"]
    second.rename(tmp_path / "elsewhere")
    there = sweep(text, work=tmp_path / "there").jobs
    before = put(there[0].work.path / "runs" / "large" / "before")
    (told,) = unpack(tmp_path / "out", there)
    assert told.startswith("certify large: an archive is missing that holds a part of it; bring that too")
    assert [job.done for job in there] == [False, True]
    assert [one.name for one in before.parent.iterdir()] == ["before"]
    (tmp_path / "elsewhere").rename(second)
    assert unpack(tmp_path / "out", there) == []
    assert [job.done for job in there] == [True, True]
    assert not before.exists()


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

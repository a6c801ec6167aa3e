"""What comes out of archives: a job as a whole or not at all, and nothing but what jobs make."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from packed_files import SWEEP, names, pack, put

from ringfence.errors import DataError, StoreError
from ringfence.sweep import Job, Sweep, SweepFolder, unpack, unpacking

Read = Callable[..., Sweep]


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
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz", pax_headers={unpacking.COUNTS: told}) as tar:
        tar.add(put(tmp_path / "file"), arcname="sweep/zoo/z/two/config.json")
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, sweep(SWEEP).jobs)


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

    def extract(archive: Path, folder: Path, plainly: Callable[[Path, Path], None] = unpacking._extract) -> None:
        asked.append(archive)
        plainly(archive, folder)

    monkeypatch.setattr(unpacking, "_extract", extract)
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


def test_files_of_jobs_that_a_sweep_does_not_have_are_left_out_and_told(
    sweep: Read, work: SweepFolder, tmp_path: Path
) -> None:
    """Whether all of them came, nobody there knows: the job would be done once its file has it again."""
    jobs = sweep("certify: [{name: run}, {name: later}]").jobs
    (work.path / "jobs").mkdir(parents=True)
    for job in jobs:
        put(work.path / job.out / "summary.json")
        work.end(job, 1.0)
    pack(jobs, jobs, tmp_path / "out")
    there = sweep("certify: [{name: later}]", work=tmp_path / "there")
    (told,) = unpack(tmp_path / "out", there.jobs)
    assert re.match(r"sweep: \d files of jobs that are not in its file, such as jobs/certify-run\.json; unpack", told)
    assert [job.done for job in there.jobs] == [True]
    assert sorted(one.name for one in (tmp_path / "there").rglob("*") if "run" in one.name) == ["runs"]


def test_an_archive_says_exactly_how_many_files_a_job_has(sweep: Read, tmp_path: Path) -> None:
    """Only those of earlier versions do not: one whose count was lost would pass for whole with any number of them."""
    (job,) = sweep("certify: [{name: run}]").jobs
    headers = {unpacking.TOGETHER: "a", unpacking.COUNTS: "{}"}
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz", pax_headers=headers) as tar:
        tar.add(put(tmp_path / "file"), arcname="sweep/runs/run/part")
    assert len(unpack(tmp_path, [job])) == 1
    assert not (job.work.path / job.out).exists()


def test_a_job_that_is_done_is_whole_whenever_unpacking_is_killed(
    sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, whole = "certify: [{name: run}, {name: later}]", ["new", "new", "new"]
    jobs = sweep(text).jobs
    (jobs[0].work.path / "jobs").mkdir(parents=True)
    for job in jobs:
        for name, content in zip(("part-1", "part-2", "summary.json"), whole, strict=True):
            put(job.work.path / job.out / name).write_text(content)
        job.work.end(job, 1.0)
    pack(jobs, jobs, tmp_path / "out")

    class Killed(BaseException):
        """No code that runs hears of it."""

    def killed_at(step: int, there: list[Job], replace: Callable[[Path, Path], Path] = Path.replace) -> bool:
        steps = iter(range(step))

        def one_step(file: Path, target: Path) -> Path:
            if next(steps, None) is None:
                raise Killed
            return replace(file, target)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", one_step)
            try:
                unpack(tmp_path / "out", there)
            except Killed:
                return True
        return False

    for step in range(100):
        there = sweep(text, work=tmp_path / f"there-{step}")
        put(there.work.path / "runs" / "run" / "old").write_text("old")
        (there.work.path / "jobs").mkdir()
        there.work.end(there.jobs[0], 1.0)
        killed = killed_at(step, list(there.jobs))
        for job in there.jobs:
            found = [one.read_text() for one in (job.work.path / job.out).rglob("*") if one.is_file()]
            assert found in ([], ["old"], whole)
            assert found or not job.done
        assert unpack(tmp_path / "out", there.jobs) == []
        assert all(job.done for job in there.jobs)
        if not killed:
            break
    assert step > len(jobs)


def test_a_note_that_a_job_is_done_goes_with_what_it_was_about(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    (job,) = sweep("certify: [{name: run}]").jobs
    pack([job], [job], tmp_path / "out")
    (there,) = sweep("certify: [{name: run}]", work=tmp_path / "there").jobs
    put(there.work.path / there.out / "summary.json")
    (there.work.path / "jobs").mkdir()
    there.work.end(there, 1.0)
    assert unpack(tmp_path / "out", [there]) == []
    assert not there.done


def test_what_a_killed_unpacking_left_is_cleared_away(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    jobs = sweep(SWEEP).jobs
    pack(jobs, jobs, tmp_path / "out")
    there = sweep(SWEEP, work=tmp_path / "there").jobs
    for _ in range(2):  # the second time they were taken in before
        left = put(tmp_path / "there" / f".writing-{unpacking.UNPACKING}x1" / "sweep" / "runs" / "run" / "part-1")
        unpack(tmp_path / "out", there)
        assert not left.parents[3].exists()


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8, 0.999])
def test_an_archive_whose_content_is_damaged_is_refused(sweep: Read, tmp_path: Path, place: float) -> None:
    """All names and sizes are as they were: weights of another network would pass for those that were trained."""
    (job,) = sweep("certify: [{name: run}]").jobs
    put(job.work.path / job.out / "weights").write_bytes(random.Random(0).randbytes(30_000))
    (archive,) = pack([job], [job], tmp_path / "out")
    content = bytearray(archive.read_bytes())
    content[int(place * len(content))] ^= 1
    archive.write_bytes(content)
    (there,) = sweep("certify: [{name: run}]", work=tmp_path / "there").jobs
    with pytest.raises(DataError, match=rf"{archive.name}: must be a whole archive .* Copy it anew"):
        unpack(tmp_path / "out", [there])
    assert not (there.work.path / there.out).exists()


def test_an_archive_with_an_impossible_time_is_refused(sweep: Read, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz") as tar:
        entry = tarfile.TarInfo("sweep/runs/run/part")
        entry.mtime = 1e300
        tar.addfile(entry)
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, sweep(SWEEP).jobs)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_no_archive(sweep: Read, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "work-1.tgz")
    with pytest.raises(StoreError, match=r"work-1\.tgz: must be a readable file; got not a file"):
        unpack(tmp_path, sweep(SWEEP).jobs)


def test_a_disk_without_room_is_not_blamed_on_the_archive(
    sweep: Read, work: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = sweep(SWEEP).jobs
    pack(jobs, jobs, tmp_path / "out")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(StoreError, match=r"must be writable; got No space left on device\. Free some space"):
        unpack(tmp_path / "out", sweep(SWEEP, work=tmp_path / "there").jobs)


def test_archives_of_two_packings_are_never_taken_for_one(sweep: Read, tmp_path: Path) -> None:
    """Each has as many files as the other says; what they hold together is no state that the job ever was in."""
    (job,) = sweep("certify: [{name: run}]").jobs
    made: dict[str, list[Path]] = {}
    for sitting in ("first", "second"):
        for name in ("part", "summary.json"):
            put(job.work.path / job.out / name, 30_000)
        made[sitting] = pack([job], [job], tmp_path / sitting, 40_000 / 2**20)
    assert len(made["first"]) == len(made["second"]) == 2
    kept = made["second"][0].rename(tmp_path / "kept")
    made["first"][0].rename(made["second"][0])
    (there,) = sweep("certify: [{name: run}]", work=tmp_path / "there").jobs
    before = put(there.work.path / there.out / "before")
    rule = r"second: must hold archives of one packing; got work-1\.tgz of \w+; work-2\.tgz of \w+\. Give the archives"
    with pytest.raises(DataError, match=rule):
        unpack(tmp_path / "second", [there])
    assert [one.name for one in before.parent.iterdir()] == ["before"]
    kept.rename(made["second"][0])
    assert unpack(tmp_path / "second", [there]) == []
    assert not before.exists()


@pytest.mark.parametrize("sizes", [(30_000, 30_000), (30_000, 90_000), (90_000, 30_000)])
def test_whenever_packing_is_killed_all_of_one_packing_is_there(
    sweep: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    """Also where the new one has more archives than the old one, or fewer."""
    (job,) = sweep("certify: [{name: run}]").jobs

    class Killed(BaseException):
        """No code that runs hears of it."""

    def kill_before(step: int, method: str) -> None:
        steps, plainly = iter(range(step)), getattr(Path, method)

        def one_step(file: Path, *more: Path) -> object:
            if next(steps, None) is None:
                raise Killed
            return plainly(file, *more)

        monkeypatch.setattr(Path, method, one_step)

    def made(generation: int, out: Path) -> None:
        shutil.rmtree(job.work.path / job.out, ignore_errors=True)
        for number in range(sizes[generation] // 30_000 + 1):
            put(job.work.path / job.out / f"{generation}-{number}", 30_000)
        pack([job], [job], out, 40_000 / 2**20)

    seen = set()
    for method, step in [("replace", step) for step in range(9)] + [("unlink", step) for step in range(3)]:
        out = tmp_path / f"{method}-{step}"
        made(0, out)
        with monkeypatch.context(), suppress(Killed):
            kill_before(step, method)
            made(1, out)
        monkeypatch.undo()
        (there,) = sweep("certify: [{name: run}]", work=tmp_path / f"there-{method}-{step}").jobs
        try:
            assert all(told.endswith("of another packing, which is not whole") for told in unpack(out, [there]))
        except DataError:  # both are whole, so that each is found in a folder of its own
            assert len({one.name.partition("-work")[0] for one in out.glob("work-*-work-*")}) == 1
            assert len(list(out.iterdir())) == sum(size // 30_000 + 1 for size in sizes)
            continue
        found = sorted(one.name for one in (there.work.path / there.out).iterdir())
        generation = int(found[0][0])
        assert found == [f"{generation}-{number}" for number in range(sizes[generation] // 30_000 + 1)]
        seen.add(generation)
    assert seen == {0, 1}


def test_archives_without_the_name_of_their_packing_are_of_one(sweep: Read, tmp_path: Path) -> None:
    """Those of earlier versions; beside one that has a name they are of another."""
    (job,) = sweep("certify: [{name: run}]").jobs
    old = tmp_path / "old"
    old.mkdir()
    for number in (1, 2):
        file = put(tmp_path / "file")
        with tarfile.open(old / f"work-{number}.tgz", "w:gz") as tar:
            tar.add(file, arcname=f"sweep/runs/run/part-{number}")
    assert unpack(old, [job]) == []
    assert sorted(one.name for one in (job.work.path / job.out).iterdir()) == ["part-1", "part-2"]
    (named,) = pack([job], [job], tmp_path / "new")
    named.rename(old / "work-2.tgz")
    with pytest.raises(DataError, match=r"work-1\.tgz of one without a name; work-2\.tgz of"):
        unpack(old, [job])


def test_what_this_repository_keeps_unfinished_can_be_taken_in(sweep: Read, tmp_path: Path) -> None:
    kept = Path(__file__).resolve().parents[2] / "reproduce" / "unfinished"
    if not any(kept.glob("*.tgz")):
        pytest.skip("nothing is unfinished")
    jobs = sweep("certify: [{name: run}]").jobs
    assert all(told.endswith("name its file, too") for told in unpack(kept, jobs))

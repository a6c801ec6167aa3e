"""What travels: nothing needed is missing, nothing else goes along, nothing is too large."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.errors import DataError
from ringfence.sweep import Sweep, SweepFolder, pack, unpack

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


def names(archives: list[Path]) -> list[str]:
    found = []
    for archive in archives:
        with tarfile.open(archive) as tar:
            found += tar.getnames()
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
    found = names(pack(jobs[:3], jobs, work, tmp_path / "out"))
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
    found = names(pack([run, later], jobs, work, tmp_path / "out"))
    assert {one for one in found if one.startswith("runs")} == {"runs/run/parts/part-1", "runs/run/summary.json"}
    assert "zoo/z/two/final-0.safetensors" in found
    assert not any(one.startswith("zoo/z/other") for one in found)
    unpack(tmp_path / "out", jobs, SweepFolder(tmp_path / "again"))
    file = "zoo/z/two/member-1/epoch-00003.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (work.path / file).read_bytes()
    assert SweepFolder(tmp_path / "again").done(run)


def test_unpacking_leaves_nothing_of_an_older_state(sweep: Read, work: SweepFolder, tmp_path: Path) -> None:
    jobs, older = sweep(SWEEP).jobs, SweepFolder(tmp_path / "older")
    stale = [put(older.path / "runs" / "run" / "parts" / "part-0"), put(older.path / "zoo/z/two/member-0/last.json")]
    kept = [put(older.path / "runs" / "later" / "parts" / "part-0"), put(older.path / "data" / "of a user")]
    for folder, name in ((work, "certify-run.json"), (older, "elsewhere")):
        (folder.path / "jobs").mkdir()
        (folder.path / "jobs" / "certify-run.log").symlink_to(name)
    work.end(jobs[4], 1.0)
    pack([jobs[0], jobs[4]], jobs, work, tmp_path / "out")
    unpack(tmp_path / "out", jobs, older)
    assert not any(file.exists() for file in stale)
    assert all(file.exists() for file in kept)
    assert sorted(file.name for file in (older.path / "runs" / "run").rglob("*")) == ["part-1", "parts", "summary.json"]
    assert (older.path / "jobs" / "certify-run.log").readlink() == Path("certify-run.json")
    assert sorted(one.name for one in older.path.iterdir()) == ["data", "jobs", "runs", "zoo"]
    broken = put(tmp_path / "out" / "work-2.tgz")
    again = put(older.path / "runs" / "run" / "parts" / "part-2")
    with pytest.raises(DataError, match=re.escape(str(broken))):
        unpack(tmp_path / "out", jobs, older)
    assert again.exists()


def test_no_archive_is_too_large_unless_one_file_is(sweep: Read, tmp_path: Path) -> None:
    jobs, work = sweep("certify: [{name: run}]").jobs, SweepFolder(tmp_path / "work")
    for i in range(7):
        put(work.path / "runs" / "run" / f"part-{i}", 30_000)
    put(work.path / "runs" / "run" / "big", 150_000)
    put(tmp_path / "out" / "work-9.tgz")  # of a call before
    archives = pack(jobs, jobs, work, tmp_path / "out", 100_000 / 2**20)
    assert len(names(archives)) == 8
    assert sorted(archives) == sorted((tmp_path / "out").iterdir())
    sizes = sorted(archive.stat().st_size for archive in archives)
    assert len(sizes) == 4  # three, three and one of the small ones, and the big one
    assert sizes[-2] <= 100_000 < sizes[-1]


def test_archives_that_are_none_are_refused(tmp_path: Path) -> None:
    work = SweepFolder(tmp_path / "work")
    with pytest.raises(DataError, match=r"no \.tgz"):
        unpack(tmp_path, (), work)
    put(tmp_path / "work-1.tgz", 1000)
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, (), work)
    with tarfile.open(tmp_path / "work-1.tgz", "w:gz") as tar:
        tar.add(put(tmp_path / "file"), arcname="../escaped")
    with pytest.raises(DataError, match="Copy it anew"):
        unpack(tmp_path, (), work)
    assert not (tmp_path / "escaped").exists()

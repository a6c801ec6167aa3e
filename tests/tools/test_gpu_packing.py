"""What comes back from a GPU: nothing needed is missing, nothing else travels, nothing is too large."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

Tool = Callable[[str], ModuleType]


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
def zoo(tmp_path: Path) -> Path:
    """Two independent members, one finished; a finished pair trained together, and one that is half exported."""
    root = tmp_path / "work" / "zoo"
    for training in ("two", "pair", "half"):
        put(root / training / "config.json").write_text(json.dumps({"members": 2}))
        put(root / training / "final-0.safetensors")
    put(root / "pair" / "final-1.safetensors")
    for folder in ("two/member-0", "two/member-1", "pair/joint", "half/joint"):
        for name in ("log.csv", "last.json", "epoch-00003.safetensors", ".writing-epoch-00004"):
            put(root / folder / name)
    return root


def test_finished_members_travel_without_checkpoints_and_others_with_theirs(tool: Tool, zoo: Path) -> None:
    out = zoo.parent / "out"
    tool("gpu_packing").pack_zoo(zoo, out)
    kept = names(sorted(out.glob("zoo-*.tgz")))
    rest = names(sorted(out.glob("rest-*.tgz")))
    weights = ["zoo/two/final-0", "zoo/pair/final-0", "zoo/pair/final-1", "zoo/half/final-0"]
    logs = ["zoo/two/member-0", "zoo/two/member-1", "zoo/pair/joint", "zoo/half/joint"]
    settings = [f"zoo/{training}/config.json" for training in ("two", "pair", "half")]
    expected = [f"{one}.safetensors" for one in weights] + [f"{one}/log.csv" for one in logs] + settings
    assert kept == sorted(expected)
    unfinished = ["zoo/two/member-1", "zoo/half/joint"]
    assert rest == sorted(f"{one}/{name}" for one in unfinished for name in ("last.json", "epoch-00003.safetensors"))


def test_unpacked_archives_are_the_work_folder(tool: Tool, zoo: Path, tmp_path: Path) -> None:
    for archive in tool("gpu_packing").pack_zoo(zoo, tmp_path / "out"):
        with tarfile.open(archive) as tar:
            tar.extractall(tmp_path / "again", filter="data")
    file = "zoo/two/member-1/epoch-00003.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (zoo.parent / file).read_bytes()


def test_no_archive_is_too_large_unless_one_file_is(tool: Tool, tmp_path: Path) -> None:
    packing = tool("gpu_packing")
    files = [put(tmp_path / "runs" / f"run-{i}" / "part", 30_000) for i in range(7)]
    files.append(put(tmp_path / "runs" / "big", 150_000))
    put(tmp_path / "runs" / "run-0" / "lock")
    put(tmp_path / "out" / "runs-9.tgz")  # of a call before
    archives = packing.pack_runs(tmp_path / "runs", tmp_path / "out", limit=100_000)
    assert names(archives) == sorted(str(file.relative_to(tmp_path)) for file in files)
    assert sorted(archives) == sorted((tmp_path / "out").iterdir())
    sizes = sorted(archive.stat().st_size for archive in archives)
    assert len(sizes) == 4  # three, three and one of the small ones, and the big one
    assert sizes[-2] <= 100_000 < sizes[-1]


def test_nothing_to_pack_makes_no_archive(tool: Tool, tmp_path: Path) -> None:
    assert tool("gpu_packing").pack_zoo(tmp_path / "none", tmp_path / "out") == []
    assert list((tmp_path / "out").iterdir()) == []

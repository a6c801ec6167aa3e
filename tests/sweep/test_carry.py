"""What is carried to a machine without network: all that jobs need there, small, and the same again after unpacking."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import ArgumentError, DataError
from ringfence.sweep import Packing, Sweep, unpack
from ringfence.sweep.carry import Part, copy_library, data_files, make_carry, unpack_data
from ringfence.sweep.strips import SUFFIX, restore, shrink

Read = Callable[..., Sweep]
SWEEP = """
train:
- {name: net, settings: {x: cifar10:data}}
- {name: grey, settings: {x: "mnist:data/grey.npz"}}
certify:
- {name: run, settings: {x: "zoo/sweep/net data/weights/core.pt"}}
- {name: given, settings: {x: "zoo:z/other:0"}}
- {name: old}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """CIFAR-10 in six smooth files, grey digits, weights, and what nobody asks for."""
    folder = tmp_path / "data"
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "core.pt").write_bytes(b"weights")
    (folder / "README").write_text("not asked for")
    rng = np.random.default_rng(0)
    for part in ("test", *(f"train_part{i}" for i in range(1, 6))):
        images = np.cumsum(rng.integers(0, 3, (600, 3, 32, 32)), axis=3).astype(np.uint8)
        np.savez(folder / f"cifar10_{part}.npz", x=images, y=rng.integers(0, 10, 600).astype(np.uint8))
    np.savez_compressed(folder / "grey.npz", x=np.zeros((5, 28, 28), np.uint8), y=np.zeros(5, np.uint8))
    return folder


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    (tmp_path / "zoo" / "z" / "other").mkdir(parents=True)
    (tmp_path / "zoo" / "z" / "other" / "final-0.safetensors").touch()
    return tmp_path / "zoo"


def put(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def carry(found: Sweep, data: Path, zoo: Path, to: Path, mib: float = 50.0) -> list[Part]:
    return make_carry(found.jobs, found.jobs, data, [zoo], ["typer"], to, mib)


def test_arrays_come_back_bit_for_bit(data: Path, tmp_path: Path) -> None:
    source, small = data / "cifar10_test.npz", tmp_path / "small"
    content = shrink(source)
    assert content is not None
    assert len(content) < source.stat().st_size / 3
    small.write_bytes(content)
    restore(small, tmp_path / "again.npz")
    with np.load(source) as before, np.load(tmp_path / "again.npz") as after:
        assert before.files == after.files
        for name in before.files:
            assert before[name].dtype == after[name].dtype
            np.testing.assert_array_equal(before[name], after[name])
    assert shrink(data / "grey.npz") is None, "only colour gets smaller"
    assert shrink(data / "weights" / "core.pt") is None


def test_strips_of_another_content_are_refused(data: Path, tmp_path: Path) -> None:
    with np.load(data / "cifar10_test.npz") as arrays:
        images, labels = arrays["x"], arrays["y"]
    images[3, 1, 5, 5] ^= 1
    np.savez(tmp_path / "other.npz", x=images, y=labels)
    for name, source in (("whole", data / "cifar10_test.npz"), ("other", tmp_path / "other.npz")):
        (tmp_path / name).write_bytes(shrink(source) or b"")
    with zipfile.ZipFile(tmp_path / "mixed", "w") as mixed:
        for archive, is_picture in (("other", True), ("whole", False)):
            with zipfile.ZipFile(tmp_path / archive) as strips:
                for name in [one for one in strips.namelist() if one.endswith(".webp") == is_picture]:
                    mixed.writestr(name, strips.read(name))
    for broken in (tmp_path / "mixed", data / "README"):
        with pytest.raises(DataError, match="Carry it anew"):
            restore(broken, tmp_path / "again.npz")
    assert not (tmp_path / "again.npz").exists()


def test_jobs_find_there_what_they_need(sweep: Read, data: Path, zoo: Path, tmp_path: Path) -> None:
    found = sweep(SWEEP, zoos=[zoo])
    found.work.prepare(tmp_path, data, (), ())
    checkpoint = found.work.path / "zoo" / "sweep" / "net" / "member-0" / "last.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("{}")
    (found.work.path / "runs" / "old").mkdir()
    found.work.end(found.jobs[-1], 1.0)
    (part,) = carry(found, data, zoo, tmp_path / "carry")
    assert (part.path / "lib" / "typer" / "main.py").is_file()
    assert (part.path / "zoo" / "z" / "other" / "final-0.safetensors").is_file()
    assert part.mib == pytest.approx(
        sum(f.stat().st_size for f in part.path.rglob("*") if f.is_file()) / 2**20, abs=0.01
    )
    there = sweep(SWEEP, zoos=[part.path / "zoo"], work=tmp_path / "there")
    unpack(part.path, there.jobs)
    assert (there.work.path / "zoo" / "sweep" / "net" / "member-0" / "last.json").is_file()
    assert [job.name for job in there.jobs if job.done] == ["old"], "what is done here is not done again"
    assert not (there.work.path / "runs" / "old").exists()
    unpack_data(part.path, tmp_path / "data there")
    names = sorted(one.relative_to(data).as_posix() for one in data.rglob("*") if one.is_file())
    moved = sorted(
        one.relative_to(tmp_path / "data there").as_posix() for one in (tmp_path / "data there").rglob("*.*")
    )
    assert moved == sorted({*names} - {"README", "cifar10_test.npz"}), "a training needs no test images"
    with (
        np.load(data / "cifar10_train_part3.npz") as before,
        np.load(tmp_path / "data there" / "cifar10_train_part3.npz") as after,
    ):
        np.testing.assert_array_equal(before["x"], after["x"])
    assert unpack_data(part.path, tmp_path / "data there") == []


def test_networks_that_several_jobs_need_travel_once(sweep: Read, data: Path, zoo: Path, tmp_path: Path) -> None:
    found = sweep(SWEEP, zoos=[zoo])
    found.work.prepare(tmp_path, data, (), ())
    (found.work.path / found.jobs[0].out).mkdir(parents=True)
    for name in ("config.json", "lock", "final-0.safetensors", "member-0/epoch-00001.safetensors", "member-0/log.csv"):
        put(found.work.path / found.jobs[0].out / name)
    found.work.end(found.jobs[0], 1.0)
    (part,) = carry(found, data, zoo, tmp_path / "carry")
    trained = part.path / "zoo" / "sweep" / "net"
    carried = {one.relative_to(trained).as_posix() for one in trained.rglob("*") if one.is_file()}
    assert carried == {"config.json", "final-0.safetensors", "member-0/log.csv"}, "no checkpoint of what is finished"
    assert not list(part.path.glob("*.tgz"))
    there = sweep(SWEEP, zoos=[part.path / "zoo"], work=tmp_path / "there")
    there.work.prepare(tmp_path, data, (), ())
    there.work.adopt(there.jobs, (), [part.path / "zoo"])
    assert [job.name for job in there.jobs if job.done] == ["net"]
    assert (there.work.path / "zoo" / "sweep" / "net" / "config.json").is_file()
    assert Packing(there.jobs, there.jobs, tmp_path / "back").pack().archives == [], "and not back"


def test_what_is_too_large_goes_in_parts(sweep: Read, data: Path, zoo: Path, tmp_path: Path) -> None:
    found = sweep(SWEEP, zoos=[zoo])
    whole = carry(found, data, zoo, tmp_path / "carry")[0]
    strips = dict(whole.holds)[f"cifar10_train_part1.npz{SUFFIX}"]
    made = {file.name: file.stat().st_mtime_ns for file in whole.path.rglob(f"*{SUFFIX}")}
    parts = carry(found, data, zoo, tmp_path / "carry", whole.mib - 1.5 * strips)
    assert [part.path.name for part in parts] == ["1", "2"]
    assert all(part.mib <= whole.mib - 1.5 * strips for part in parts)
    files = [file for part in parts for file in part.path.rglob(f"*{SUFFIX}")]
    assert {file.name: file.stat().st_mtime_ns for file in files} == made, "nothing is made twice"
    for part in parts:
        unpack_data(part.path, tmp_path / "there")
    assert len(list((tmp_path / "there").glob("cifar10_train_part?.npz"))) == 5
    again = carry(found, data, zoo, tmp_path / "carry")
    assert [part.path.name for part in again] == ["1"]
    assert not (tmp_path / "carry" / "2").exists()
    with pytest.raises(ArgumentError, match="carry_mib: must hold"):
        carry(found, data, zoo, tmp_path / "carry", 0.01)


def test_a_data_set_says_which_of_its_files_travel(sweep: Read, data: Path) -> None:
    digits, pictures = data / "digits", data / "pictures"
    for kind in ("train", "t10k"):
        for name in ("images-idx3", "labels-idx1"):
            put(digits / "raw" / f"{kind}-{name}-ubyte")
    for split in ("train", "val"):
        put(pictures / split / "a" / "1.png")

    def travels(command: str, settings: str) -> list[str]:
        jobs = sweep(f"{command}: [{{name: a, settings: {{x: '{settings}'}}}}]").jobs
        return [file.relative_to(data).as_posix() for file in data_files(jobs, data)]

    tested = [f"digits/raw/t10k-{name}-ubyte" for name in ("images-idx3", "labels-idx1")]
    assert travels("certify", "mnist:data/digits") == travels("certify", "mnist-motion:data/digits") == tested
    assert travels("train", "mnist:data/digits") == [one.replace("t10k", "train") for one in tested]
    assert travels("certify", "imagenet:data/pictures") == ["pictures/val/a/1.png"]
    assert travels("train", "imagenet:data/pictures") == ["pictures/train/a/1.png"]
    assert travels("train", "cifar10:data/cifar10_test.npz") == ["cifar10_test.npz"]
    assert travels("certify", "hf-data:data/pictures") == [f"pictures/{one}/a/1.png" for one in ("train", "val")]


def test_data_and_libraries_that_are_missing_are_told(sweep: Read, data: Path, zoo: Path, tmp_path: Path) -> None:
    jobs = sweep(SWEEP, zoos=[zoo]).jobs
    with pytest.raises(ArgumentError, match="needs data"):
        data_files(jobs, None)
    (data / "weights" / "core.pt").unlink()
    with pytest.raises(ArgumentError, match=r"must hold weights/core\.pt, which certify run needs"):
        data_files(jobs, data)
    with pytest.raises(ArgumentError, match="libraries: must be installed here"):
        copy_library("no-such-library", tmp_path / "lib")
    with pytest.raises(ArgumentError, match="libraries: must be a wheel"):
        copy_library(str(tmp_path / "absent.whl"), tmp_path / "lib")
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("a/core.so", "compiled")
    copy_library(str(wheel), tmp_path / "lib")
    assert (tmp_path / "lib" / "a" / "core.so").is_file(), "whoever chose a wheel chose its machine"
    copy_library("numpy", tmp_path / "lib")
    assert not list((tmp_path / "lib" / "numpy").rglob("*.so"))


def test_an_editable_install_does_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed of it is a path of this machine."""
    made = tmp_path / "site" / "mine-1.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (made / "direct_url.json").write_text('{"url": "file:///mine", "dir_info": {"editable": true}}')
    monkeypatch.syspath_prepend(tmp_path / "site")
    with pytest.raises(ArgumentError, match=r"must not be an editable install.*got mine"):
        copy_library("mine", tmp_path / "lib")
    assert not (tmp_path / "lib").exists()


def test_a_carry_that_is_killed_takes_no_old_data_for_new(
    sweep: Read, data: Path, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is moved last: of data that changed, the old must not lie beside the note of the new."""
    found = sweep(SWEEP, zoos=[zoo])
    carry(found, data, zoo, tmp_path / "carry")
    (data / "weights" / "core.pt").write_bytes(b"other weights")
    move, moves = Path.replace, list[Path]()

    def killed(self: Path, target: Path) -> Path:
        moves.extend([self] if "core.pt" in self.name else [])
        if len(moves) == 2:
            raise KeyboardInterrupt
        return move(self, target)

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        carry(found, data, zoo, tmp_path / "carry")
    monkeypatch.undo()
    (part,) = carry(found, data, zoo, tmp_path / "carry")
    assert (part.path / "data" / "weights" / "core.pt").read_bytes() == b"other weights"


def test_half_a_file_of_carried_data_is_not_left_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there is left alone the next time: it must be whole."""
    put(tmp_path / "1" / "data" / "weights.pt")
    (tmp_path / "1" / "data" / "weights.pt").write_bytes(b"weights")

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        unpack_data(tmp_path / "1", tmp_path / "there")
    monkeypatch.undo()
    assert unpack_data(tmp_path / "1", tmp_path / "there") == ["weights.pt"]
    assert (tmp_path / "there" / "weights.pt").read_bytes() == b"weights"

"""What a sweep finished is kept: whole trainings, verified runs, nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ringfence.models.zoo import read_sums
from ringfence.store import RunFolder
from ringfence.sweep import Sweep

SWEEP = """
zoo: z
always: {train: {data: default}}
train:
- {name: 'net-{i}', each: {i: [1, 2]}, settings: {members: 3}}
- {name: tried}
certify:
- {name: 'run-{i}', each: {i: [1, 2]}, settings: {model: 'zoo:z/net-{i}:0', sigma: 0.5}}
- {name: given, settings: {model: 'zoo:z/other:0', sigma: 0.5}}
"""
Finish = Callable[..., None]


@pytest.fixture
def keep(tool: Callable[[str], ModuleType]) -> ModuleType:
    return tool("keep")


@pytest.fixture
def sweep(keep: ModuleType, tmp_path: Path) -> Sweep:
    """A sweep in tmp_path/runs/sweep; tmp_path is the repository."""
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    put_training(tmp_path / "zoo" / "z" / "other", b"older")
    found: Sweep = keep.read(file, tmp_path / "runs")
    found.work.prepare(tmp_path, None, (), ())
    return found


@pytest.fixture
def finish(sweep: Sweep, fake_run: Callable[..., RunFolder]) -> Finish:
    """Do jobs of the sweep, by name, as the program would."""

    def done(*names: str, content: bytes = b"new") -> None:
        for job in [one for one in sweep.jobs if one.name in names]:
            shutil.rmtree(sweep.work.path / job.out, ignore_errors=True)
            if job.command == "train":
                put_training(sweep.work.path / job.out, content, 1 if job.name == "tried" else 3)
            else:
                run = fake_run(sweep.work.path / job.out, 4)
                (run.path / "lock").touch()
                run.write_summary({})
            sweep.work.end(job, 1.0)
            assert job.done

    return done


def put_training(place: Path, content: bytes, members: int = 1) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(json.dumps({"members": members, "init": "elsewhere/start"}))
    for number in range(members):
        (place / f"final-{number}.safetensors").write_bytes(content)


def commit_all(root: Path) -> None:
    """Everything below root, in a repository of its own."""
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "more"]):
        subprocess.run(["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)


def weights(root: Path) -> list[str]:
    return sorted(f"{path.parent.name}:{path.stem[-1]}" for path in (root / "zoo" / "z").glob("*/*.safetensors"))


def test_what_is_finished_is_kept(keep: ModuleType, sweep: Sweep, finish: Finish, tmp_path: Path) -> None:
    finish("net-1", "net-2", "tried", "run-1")
    put_training(sweep.work.path / "zoo" / "z" / "no-job", b"new")
    shutil.copytree(sweep.work.path / "runs" / "run-1", sweep.work.path / "runs" / "run-2")  # no note: it did not end

    def kept(**more: Any) -> list[str]:
        options = {"members": {}, "pictures": False, **more}
        places = keep.keep(sweep, keep.wanted_in([sweep], tmp_path), tmp_path, **options)
        return [place.relative_to(tmp_path).as_posix() for place in places]

    assert kept(members={"net-2": 2}, pictures=True) == [
        *(f"zoo/z/{one}" for one in ("net-1", "net-2", "tried")),
        "results/z/run-1",
    ]
    run = RunFolder.open(tmp_path / "results" / "z" / "run-1")
    assert run.inputs()[0].thumbnail is not None
    assert not (run.path / "lock").exists()
    assert weights(tmp_path) == ["net-2:0", "net-2:1", "other:0"], "hashes are enough where no job is left"
    for name, members in (("net-1", 3), ("net-2", 3), ("tried", 1)):
        assert len(read_sums(tmp_path / "zoo" / "z" / name)) == members
        assert json.loads((tmp_path / "zoo/z" / name / "config.json").read_text())["init"] == "zoo/z/start"
    finish("run-2")
    assert kept() == ["results/z/run-2"]
    assert RunFolder.open(tmp_path / "results" / "z" / "run-2").inputs()[0].thumbnail is None
    assert [job.name for job in sweep.jobs if not job.done] == ["given"]


@pytest.mark.parametrize("held", [0, 16])
def test_what_was_measured_on_inputs_held_out_is_kept(keep: ModuleType, tmp_path: Path, held: int) -> None:
    put_training(tmp_path / "run", b"new")
    (tmp_path / "run" / "config.json").write_text(json.dumps({"members": 1, "holdout": held}))
    (tmp_path / "run" / "joint").mkdir()
    (tmp_path / "run" / "joint" / "log.csv").write_text("epoch,held_out_accuracy\n")
    keep.keep_training(tmp_path / "run", tmp_path / "zoo" / "z" / "kept", None)
    assert (tmp_path / "zoo" / "z" / "kept" / "joint.csv").exists() == bool(held)


def test_the_zoo_gets_no_copy_back(keep: ModuleType, sweep: Sweep, finish: Finish, tmp_path: Path) -> None:
    """Jobs work on copies of the zoo's networks; a zoo that changed meanwhile must not get the old ones back."""
    zoo = tmp_path / "zoo"
    put_training(zoo / "z" / "net-1", b"older", 3)
    finish("net-2", content=b"older")
    sweep.work.adopt(sweep.jobs, (), [zoo])
    sweep.work.prepare(tmp_path, None, [Path("z/other")], [zoo])
    copies = [sweep.work.path / "zoo" / "z" / name / "final-0.safetensors" for name in ("net-1", "other", "net-2")]
    assert [copy.read_bytes() for copy in copies] == [b"older"] * 3

    def kept() -> list[str]:
        return [place.name for place in keep.keep(sweep, keep.wanted_in([sweep], tmp_path), tmp_path, {}, False)]

    assert kept() == ["net-2"]
    for name in ("net-1", "net-2", "other"):
        put_training(zoo / "z" / name, b"newer", 3)
    finish("run-1", "run-2", "given")
    assert kept() == ["run-1", "run-2", "given"]
    assert {file.read_bytes() for file in zoo.rglob("*.safetensors")} == {b"newer"}
    finish("net-2", content=b"newest")
    assert kept() == ["net-2"], "what a job trains again is new"


def test_weights_that_nothing_needs_leave(keep: ModuleType, sweep: Sweep, finish: Finish, tmp_path: Path) -> None:
    for name in ("net-1", "net-2", "shown", "tested", "tested-2", "nothing"):
        put_training(tmp_path / "zoo" / "z" / name, name.encode(), 2)
    shutil.copy(tmp_path / "zoo/z/other/final-0.safetensors", tmp_path / "zoo/z/lone.safetensors")
    for file, text in (
        ("docs/a.md", "zoo:z/shown:1, results/z/nothing"),
        ("tests/deep/test_b.py", 'ROOT / "zoo" / "z" / "tested"'),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text)

    def needless() -> list[str]:
        return [one.name for one in keep.needless(keep.wanted_in([sweep], tmp_path), tmp_path)]

    assert needless() == ["nothing", "tested-2"], "runs 1, 2 and given are left, and two texts name networks"
    finish("run-1", "given")
    assert needless() == ["net-1", "nothing", "other", "tested-2"]
    for training in keep.needless(keep.wanted_in([sweep], tmp_path), tmp_path):
        keep.keep_hashes(training, training.glob("final-*.safetensors"))
    assert needless() == []
    assert weights(tmp_path) == [f"{name}:{i}" for name in ("net-2", "shown", "tested") for i in (0, 1)]
    assert read_sums(tmp_path / "zoo" / "z" / "net-1") == {
        f"final-{i}.safetensors": sha256(b"net-1").hexdigest() for i in (0, 1)
    }
    assert json.loads((tmp_path / "zoo" / "z" / "net-1" / "config.json").read_text())["members"] == 2


def test_no_run_is_taken_for_that_of_another_sweep(keep: ModuleType, tmp_path: Path) -> None:
    """Jobs are done whose runs results/ has under their names, wherever: so names must not stand for two things."""
    root = Path(__file__).resolve().parents[2]
    kept = {path.parent.name: path.parents[1] for path in (root / "results").rglob("summary.json")}
    found = 0
    for sweep in [keep.read(file, tmp_path) for file in sorted(root.glob("reproduce/*/*.yaml"))]:
        for job in [one for one in sweep.jobs if one.command != "train" and one.name in kept]:
            assert kept[job.name] == keep.place_of(job, sweep, root).parent, job.name
            found += 1
    assert found > 100


def test_weights_come_back_from_the_history_as_their_hashes_say(keep: ModuleType, tmp_path: Path) -> None:
    training = tmp_path / "zoo" / "z" / "net"
    for content in (b"before", b"measured", b"after"):  # of three versions, that which was there when they left
        put_training(training, content, 3)
        commit_all(tmp_path)
    put_training(training, b"measured", 2)
    (training / "final-2.safetensors").write_bytes(b"of no commit")
    keep.keep_hashes(training, training.glob("final-*.safetensors"))
    commit_all(tmp_path)
    told = dict(keep.restore(training, tmp_path))
    assert told == {"final-0.safetensors": True, "final-1.safetensors": True, "final-2.safetensors": False}
    assert {file.read_bytes() for file in training.glob("final-*")} == {b"measured"}
    assert dict(keep.restore(training, tmp_path)) == {"final-2.safetensors": False}, (
        "what is here is not asked for again"
    )


def test_weights_are_archived_only_where_commits_hold_all_of_them(keep: ModuleType, tmp_path: Path) -> None:
    training = tmp_path / "zoo" / "z" / "net"
    put_training(training, b"measured", 2)
    commit_all(tmp_path)
    (training / "final-1.safetensors").write_bytes(b"of no commit")
    assert not keep.archive(training, tmp_path)
    assert len(list(training.glob("final-*"))) == 2, "none of them leaves"
    commit_all(tmp_path)
    assert keep.archive(training, tmp_path)
    assert not list(training.glob("final-*"))
    assert not keep.archive(training, tmp_path), "nothing is left to take out"
    assert all(there for _, there in keep.restore(training, tmp_path))
    assert (training / "final-1.safetensors").read_bytes() == b"of no commit"


def test_where_there_is_no_history_nothing_comes_back(keep: ModuleType, tmp_path: Path) -> None:
    training = tmp_path / "zoo" / "z" / "net"
    put_training(training, b"measured")
    keep.keep_hashes(training, [training / "final-0.safetensors"])
    assert dict(keep.restore(training, tmp_path)) == {"final-0.safetensors": False}

"""A sitting on a lent machine: what a call begins and what it leaves, and the whole way there and back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from ringfence.sweep import Checked, Job, SweepFolder

ROOT = Path(__file__).resolve().parents[2]
STUB = """
import json, os, sys
from pathlib import Path

words = sys.argv[1:]
with open("asked", "a") as file:
    file.write(json.dumps(words) + chr(10))
if "--pack" in words:
    place = Path(words[words.index("--pack") + 1])
    place.mkdir(exist_ok=True)
    (place / "work-1.tgz").touch()
    sys.exit(int(json.loads(os.environ["CODES"]).get(words[3], 0)))
"""
STEPS = """
SPARE=60 FILES=4 MIB=14 TOTAL=60
MEASURED="some tests" TESTED="the gpu"
steps() {
    go 1 first 1 6 "train all" "a.yaml:choose" "choose.py runs/a/runs"
    go 2 second 2 auto "all" "b.yaml:more" ""
    go 3 third 1 4 "all" "a.yaml:chosen" ""
}
"""
Call = Callable[..., list[list[str]]]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """One call in a tree with carry/1, by a Python that notes what it is asked for: what it was."""
    (tmp_path / "carry" / "1").mkdir(parents=True)
    (tmp_path / "carry" / "1" / "steps.sh").write_text(STEPS)
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S {tmp_path}/stub.py "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "stub.py").write_text(STUB)

    def one(*words: str, out: str = "out", **codes: int) -> list[list[str]]:
        asked = tmp_path / "asked"
        asked.write_text("")
        surroundings = {**os.environ, "PYTHON": str(tmp_path / "python"), "CODES": json.dumps(codes)}
        script = str(ROOT / "tools" / "lent_call.sh")
        subprocess.run(["bash", script, out, *words], cwd=tmp_path, env=surroundings, check=True)
        return [json.loads(line) for line in asked.read_text().splitlines()]

    return one


def jobs(asked: list[list[str]]) -> list[str]:
    return [f"{one[3]} {one[5] if '--phase' in one else ''}".strip() if one[0] == "-m" else one[0] for one in asked]


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_a_call_takes_the_steps_whose_data_came_and_the_next_goes_on(call: Call, tmp_path: Path) -> None:
    asked = call("10")
    assert jobs(asked) == ["a.yaml:choose train", "a.yaml:choose", "choose.py", "a.yaml:chosen"]
    assert 0 < int(option(asked[0], "--budget").removesuffix("s")) <= 540
    assert option(asked[0], "--side-by-side") == "6"
    assert {option(one, "--pack") for one in asked if "--pack" in one} == {"out"}
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.glob("out/**/*.tgz")) == [
        "out/1/work-1.tgz",
        "out/3/work-1.tgz",
    ]
    assert [option(one, "--pack-files") for one in asked if "--pack" in one] == ["3", "3", "2"]  # one is the log
    assert "== 2 waits for carry/2: b.yaml:more" in (tmp_path / "out" / "log").read_text()
    (tmp_path / "carry" / "2").mkdir()
    again = call("10", out="later")  # with a tree as it is at home: what was chosen must be written into it again
    assert jobs(again) == ["choose.py", "b.yaml:more"]
    assert [again[1][at + 1] for at, word in enumerate(again[1]) if word == "--unpack"] == ["carry/1", "carry/2"]


@pytest.mark.parametrize("code", [1, 3])
def test_what_needs_a_choice_waits_for_it(call: Call, tmp_path: Path, code: int) -> None:
    (tmp_path / "carry" / "2").mkdir()
    assert jobs(call("10", **{"a.yaml:choose": code})) == ["a.yaml:choose train", "a.yaml:choose", "b.yaml:more"]
    assert "== 3 waits for a choice: a.yaml:chosen" in (tmp_path / "out" / "log").read_text()
    assert jobs(call("10")) == ["a.yaml:choose train", "a.yaml:choose", "choose.py", "a.yaml:chosen"]


def test_nothing_begins_that_has_no_time_or_could_not_come_back(call: Call, tmp_path: Path) -> None:
    assert jobs(call("1")) == []
    steps = tmp_path / "carry" / "1" / "steps.sh"
    steps.write_text(STEPS.replace("FILES=4", "FILES=2"))
    assert jobs(call("10")) == ["a.yaml:choose train", "a.yaml:choose", "choose.py"]
    assert "== 3 finds no time, or no file for it" in (tmp_path / "out" / "log").read_text()


def test_measurements_come_first(call: Call) -> None:
    first = call("10", "measure")[0]
    assert first[:4] == ["benchmarks/gpu_sitting.py", "some", "tests", "--seconds"]
    assert int(first[4]) <= 540


def test_what_a_later_call_measures_is_compiled_beside_the_steps(call: Call) -> None:
    asked = call("10", "ready")
    (ready,) = (one for one in asked if one[0] == "benchmarks/gpu_sitting.py")
    assert ready[1:5] == ["some", "tests", "--ready", "--seconds"]
    assert jobs([one for one in asked if one is not ready])[:2] == ["a.yaml:choose train", "a.yaml:choose"]


def test_tests_of_gpus_run_beside_the_steps(call: Call, tmp_path: Path) -> None:
    asked = call("10", "test")
    (tests,) = (one for one in asked if one[0] == "benchmarks/gpu_sitting.py")
    assert tests[1:4] == ["the", "gpu", "--seconds"]
    others = [one for one in asked if one is not tests]
    assert others == [], "their files leave no room for others"
    steps = tmp_path / "carry" / "1" / "steps.sh"
    steps.write_text(STEPS.replace("FILES=4", "FILES=7"))
    assert jobs([one for one in call("10", "test") if one[0] != tests[0]])[:2] == [
        "a.yaml:choose train",
        "a.yaml:choose",
    ]


@pytest.mark.parametrize("minutes", ["2.4", "", "ten"])
def test_minutes_are_whole(call: Call, minutes: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        call(minutes)


@pytest.fixture
def lent(tool: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tool("lent_gpu")


def test_steps_are_prepared_as_far_as_the_minutes_go(lent: Any) -> None:
    def step(*left: float, sweep: str = "a.yaml", by_hand: bool = False) -> Any:
        return SimpleNamespace(left=left, sweep=sweep, by_hand=by_hand)

    planned = [step(), step(3.0, 4.0), step(), step(3.0), step(1.0)]
    assert lent.reached(planned, 7) == [planned[1]]
    assert lent.reached(planned, 10) == [planned[1], planned[3]]
    assert lent.reached(planned, 10.5) == [planned[1], planned[3], planned[4]]
    looked_at = [step(1.0, by_hand=True), step(1.0), step(1.0, sweep="b.yaml")]
    assert lent.reached(looked_at, 9) == [looked_at[0], looked_at[2]]


def test_calls_that_only_bring_data_measure_nothing(lent: Any) -> None:
    assert lent.said([10, 10, 8]) == {1: "ready", 2: "measure", 3: "test"}
    assert lent.said([1, 1, 10, 10, 5]) == {3: "ready", 4: "measure", 5: "test"}
    assert lent.said([1, 10]) == {2: "ready"}


def test_archives_are_taken_in_by_steps_and_last_those_of_a_killed_one(lent: Any, tmp_path: Path) -> None:
    for name in ("10", "9", ".writing-out-1"):
        (tmp_path / name).mkdir()
    assert lent.packings(tmp_path) == [tmp_path / "9", tmp_path / "10", tmp_path]


def test_steps_that_find_no_room_wait_for_another_sitting(lent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said, asked = {3: "error: --carry-mib: must hold more", 2: ""}, []

    def run(words: list[str], **_: Any) -> Any:
        asked.append(words[4:])
        return SimpleNamespace(returncode=2 if said[len(asked[-1]) - 1] else 0, stderr=said[len(asked[-1]) - 1])

    monkeypatch.setattr(lent.subprocess, "run", run)
    planned = [SimpleNamespace(jobs=name) for name in "abc"]
    assert lent.gathered(planned, ["--data"]) == planned[:2]
    assert asked == [["a", "b", "c", "--data"], ["a", "b", "--data"]]
    said[3] = "error: --data: must hold b"  # what another sitting does not mend ends it
    with pytest.raises(SystemExit):
        lent.gathered(planned, ["--data"])


def test_weights_come_from_history_by_their_hash_alone(
    lent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, name = tmp_path / "zoo" / "z" / "net", "final-0.safetensors"
    training.mkdir(parents=True)
    git("init", "-q", cwd=tmp_path)
    for content in (b"first", b"second"):  # it was taken out twice
        (training / name).write_bytes(content)
        git("add", "-A", cwd=tmp_path)
        git("commit", "-q", "-m", "in", cwd=tmp_path)
        (training / name).unlink()
        git("add", "-A", cwd=tmp_path)
        git("commit", "-q", "-m", "out", cwd=tmp_path)
        training.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(lent, "ROOT", tmp_path)
    work, out = SweepFolder(tmp_path / "work"), Path("zoo") / "z" / "net"
    job = Job("net", "train", (), out, "net", 1, work, checked=Checked((out / name,)))
    (tmp_path / "work" / "jobs").mkdir(parents=True)
    (training / "SHA256SUMS").write_text(f"{sha256(b'third').hexdigest()}  {name}\n")
    assert not lent.from_history(job)
    assert not (tmp_path / "work" / out).exists()
    (training / "SHA256SUMS").write_text(f"{sha256(b'first').hexdigest()}  {name}\n")
    assert lent.from_history(job)
    assert (tmp_path / "work" / out / name).read_bytes() == b"first"
    assert job.done
    assert work.adopted(job)  # so that nobody keeps it anew


def test_files_that_git_cannot_bring_back_end_it(lent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "ROOT", tmp_path)
    git("init", "-q", cwd=tmp_path)
    (tmp_path / "kept").touch()
    git("add", "-A", cwd=tmp_path)
    git("commit", "-q", "-m", "in", cwd=tmp_path)
    lent.whole()  # nothing was left out
    git("sparse-checkout", "set", "--no-cone", "/*", "!/kept", cwd=tmp_path)
    (tmp_path / ".git" / "index.lock").touch()
    with pytest.raises(SystemExit):  # else everything in results/ and zoo/ would count as gone
        lent.whole()


def git(*words: str, cwd: Path) -> str:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small one: our programs, a sweep file of three steps, one of them after a choice, and weights that left it."""
    root = tmp_path / "repository"
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tools", root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "reproduce" / "left", root / "reproduce" / "left")
    for file in (ROOT / "reproduce").glob("*.py"):
        shutil.copy(file, root / "reproduce")
    marks = "".join(f"<!-- table {one} -->\n<!-- end -->\n" for one in ("stretches", "left"))
    (root / "reproduce" / "README.md").write_text(marks)
    paper = root / "reproduce" / "paper"
    paper.mkdir()
    (paper / "small.yaml").write_text(SMALL)
    (paper / "choose.py").write_text(CHOOSE)
    (root / "reproduce" / "stretches.yaml").write_text(PLAN)
    (root / ".gitignore").write_text("runs/\ncarry/\n__pycache__/\n")
    old = root / "zoo" / "some" / "old"
    command = [sys.executable, "-m", "ringfence", "train", "--out", str(old), "--data", "default", "--limit", "64"]
    subprocess.run(
        [*command, "--objective", "gaussian", "--sigma", "0.5", "--epochs", "1", "--batch", "32"], check=True
    )
    for extra in old.glob("member-*"):
        shutil.rmtree(extra)
    (root / "results" / "benchmarks").mkdir(parents=True)
    (root / "results" / "benchmarks" / "kept").touch()
    git("init", "-q", cwd=root)
    git("add", "-A", cwd=root)
    git("commit", "-q", "-m", "with weights", cwd=root)
    weights = old / "final-0.safetensors"
    (old / "SHA256SUMS").write_text(f"{sha256(weights.read_bytes()).hexdigest()}  {weights.name}\n")
    weights.unlink()
    git("add", "-A", cwd=root)
    git("commit", "-q", "-m", "without", cwd=root)
    return root


SMALL = """
zoo: some
data: a folder
shared:
  chosen: {n: 100}
always:
  train: {data: default, objective: gaussian, sigma: 0.5, epochs: 1, limit: 64, batch: 32}
  certify: {data: default, sigma: 0.5, limit: 2, n0: 10, n: 100}
train:
- {name: old, minutes: 1}
- {name: 'new-{rate}', each: {rate: [0.05, 0.01]}, settings: {lr: '{rate}'}, minutes: 1}
certify:
- {name: choose, settings: {model: 'zoo:some/new-0.05:0'}, minutes: 1}
- {name: later, use: [chosen], settings: {model: 'zoo:some/old:0'}, minutes: 1}
"""
PLAN = """
- {sweep: paper/small.yaml, names: [new, choose], fills: a choice, together: 2, apart: true, then: choose.py}
- {sweep: paper/small.yaml, names: [later], fills: a row}
"""
CHOOSE = """
import sys
from pathlib import Path

import ringfence as rf

assert rf.load(Path(sys.argv[1]) / "choose").metrics()
file = Path(__file__).parent / "small.yaml"
file.write_text(file.read_text().replace("chosen: {n: 100}", "chosen: {n: 200}"))
"""


@pytest.mark.slow
def test_there_and_back(repository: Path, tmp_path: Path) -> None:
    surroundings = {**os.environ, "PYTHONPATH": str(repository / "src"), "PYTHON": sys.executable}

    def run(*words: str, cwd: Path = repository) -> str:
        done = subprocess.run(words, cwd=cwd, env=surroundings, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    (tmp_path / "data").mkdir()
    words = ["--measure", "", "--calls", "10,5", "--libraries", "mdurl", "--python", "none"]
    wheels = repository / "carry" / "wheels"
    wheels.mkdir(parents=True)
    with ZipFile(wheels / f"pydantic_core-{version('pydantic-core')}-cpnone-x.whl", "w") as wheel:
        wheel.writestr("carried.txt", "")
    told = run(sys.executable, "tools/lent_gpu.py", "prepare", "--data", str(tmp_path / "data"), *words)
    assert "from git: zoo/some/old" in told
    assert 'call 1 (10 minutes), with carry/1: bash tools/lent_call.sh "$OUT" 10\n' in told
    assert 'call 2 (5 minutes), on the same machine: bash tools/lent_call.sh "$OUT" 5\n' in told
    assert not (repository / "zoo").exists()
    there = tmp_path / "there"
    shutil.copytree(repository, there, ignore=shutil.ignore_patterns(".git", "runs", "wheels"))
    print(run("bash", "tools/lent_call.sh", str(tmp_path / "out" / "1"), "10", cwd=there))
    assert (there / "carry" / "1" / "lib" / "carried.txt").exists()
    print(run(sys.executable, "tools/lent_gpu.py", "take", str(tmp_path / "out" / "1")))
    assert "chosen: {n: 200}" in (repository / "reproduce" / "paper" / "small.yaml").read_text()
    assert json.loads((repository / "results" / "some" / "later" / "config.json").read_text())["procedure"]["n"] == 200
    assert (repository / "zoo" / "some" / "new-0.01" / "config.json").exists()
    assert not list((repository / "zoo" / "some" / "old").glob("*.safetensors"))  # git has them
    assert not list((repository / "reproduce" / "unfinished").glob("*"))
    assert "paper/small.yaml" not in (repository / "reproduce" / "README.md").read_text()  # nothing is left

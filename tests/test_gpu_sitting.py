"""What a lent GPU is asked for, in order: begun if there is time, ended in time, and gone on with."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def sitting(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import gpu_sitting

    return gpu_sitting


def scripts(folder: Path, **texts: str) -> dict[str, str]:
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return {name: str(folder / f"{name}.py") for name in texts}


def test_steps_write_their_results_and_the_same_command_takes_what_is_left(
    sitting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, out, turns = tmp_path / "work", tmp_path / "out", tmp_path / "turns"
    text = f"import sys; open({str(turns)!r}, 'a').write(sys.argv[1] + ' '); open(sys.argv[2], 'w').write(sys.argv[1])"
    made = scripts(tmp_path, one=text)["one"]
    steps = {
        "first": sitting.Step(f"{made} first {{work}}/one.json", "one.json", 1, 300),
        "long": sitting.Step(f"{made} long {{work}}/two.json", "two.json", 10_000, 20_000),
        "last": sitting.Step(f"{made} last {{work}}/three.json", "three.json", 1, 300),
    }
    monkeypatch.setattr(sitting, "STEPS", steps)
    assert sitting.run(list(steps), work, out, 600) == ["long"]  # no time for it; a later, shorter one takes its place
    assert {one.name: one.read_text() for one in out.iterdir()} == {"one.json": "first", "three.json": "last"}
    assert sitting.run(list(steps), work, out, 20_000) == []
    assert turns.read_text().split() == ["first", "last", "long"]


def test_a_step_is_ended_with_all_that_it_started(
    sitting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote before stays, and it is not taken again."""
    lines = ["import subprocess, sys, time", "words = [sys.executable, '-c', 'import time; time.sleep(600)']"]
    lines += ["open(sys.argv[1], 'w').write(str(subprocess.Popen(words).pid))", "time.sleep(600)"]
    made = scripts(tmp_path, slow="\n".join(lines))["slow"]
    monkeypatch.setattr(sitting, "STEPS", {"slow": sitting.Step(f"{made} {{work}}/pid.json", "pid.json", 0, 0)})
    begin, pid = sitting.begun, tmp_path / "work" / "pid.json"

    def begun(words: list[str]) -> Any:
        """It has no time at all, once it has started another one."""
        process = begin(words)
        while not (pid.exists() and pid.read_text()):
            assert process.poll() is None
            time.sleep(0.01)
        return process

    monkeypatch.setattr(sitting, "begun", begun)
    assert sitting.run(["slow"], tmp_path / "work", tmp_path / "out", 600) == []
    there = Path("/proc") / (tmp_path / "out" / "pid.json").read_text() / "stat"
    for _ in range(3000):  # it is killed; who takes it from the list of processes may be slow
        if not there.exists() or there.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("a process that a step started was left running")


def test_caches_are_filled_at_the_same_time_and_in_time(
    sitting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first waits for the second; a third, which waits for nobody's sign, is ended."""
    wait = (
        "import sys, time; from pathlib import Path; Path(sys.argv[1]).touch()\nwhile not Path(sys.argv[2]).exists():"
    )
    made = scripts(tmp_path, waiting=f"{wait} time.sleep(0.01)")["waiting"]
    names = {"one": ("a", "b"), "two": ("b", "a"), "hung": ("c", "never")}
    steps = {
        name: sitting.Step("", "", 0, 0, " ".join([made, *(f"{{work}}/{one}" for one in two)]))
        for name, two in names.items()
    }
    monkeypatch.setattr(sitting, "STEPS", {**steps, "nothing": sitting.Step("", "", 0, 0)})
    sitting.make_ready(["one", "two", "nothing"], tmp_path / "work", 600)
    sitting.make_ready(["hung"], tmp_path / "work", 0.1)
    assert {"a", "b"} <= {one.name for one in (tmp_path / "work").iterdir()}


def test_results_so_far_are_those_of_the_steps_before(sitting: Any, tmp_path: Path) -> None:
    step = sitting.STEPS["networks"]
    committed = ROOT / "results" / "benchmarks" / "gpu_limits.json"
    assert str(committed) in sitting.words_of(step.words, step, tmp_path)
    (tmp_path / "gpu_limits.json").write_text("{}")
    words = sitting.words_of(step.words, step, tmp_path)
    assert words[words.index("--keep") + 1] == str(tmp_path / "gpu_limits.json")


def test_a_step_that_writes_its_tables_last_knows_when_it_must_be_over(sitting: Any, tmp_path: Path) -> None:
    step = sitting.STEPS["objectives"]
    words = sitting.words_of(step.words, step, tmp_path, 396.0)
    assert 300 < int(words[words.index("--limit") + 1]) <= 386


@pytest.mark.parametrize(("script", "option"), [("gpu_limits.py", "only"), ("gpu_training.py", "cases")])
def test_every_case_that_a_step_names_exists(sitting: Any, script: str, option: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / script), "--list"], capture_output=True, text=True)
    known = [*done.stdout.split(), "missing"]
    texts = [text for step in sitting.STEPS.values() for text in (step.words, step.ready) if script in text]
    named = [name for text in texts for name in re.search(rf"--{option} (\S+)", text)[1].split(",")]  # type: ignore[index]
    assert named
    assert all(any(one.startswith(name) for one in known) for name in named)


def test_no_more_files_come_back_than_may(sitting: Any) -> None:
    assert len({step.result for step in sitting.STEPS.values()}) + 1 <= 8  # with a log

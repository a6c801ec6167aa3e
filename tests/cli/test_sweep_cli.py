"""``ringfence sweep``: files are checked, listed, planned, run, stopped, resumed and reported."""

from __future__ import annotations

import itertools
import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import ringfence as rf
from ringfence.cli.sweep_commands import PROGRAM, job_of, settings_of, words_of
from ringfence.data import load_dataset
from ringfence.errors import ArgumentError
from ringfence.sweep.worker import Worker

Call = Callable[..., Result]
Start = Callable[..., subprocess.Popen[str]]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "drt.yaml"
SMALL = """
certify:
- name: n{n}
  each: {n: [100, 200]}
  settings: {sigma: 0.5, limit: 2, n: "{n}", batch: 100}
- name: broken
  settings: {sigma: 0.5, limit: 2, data: here/absent.npz}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL)
    return file


def test_settings_become_the_words_of_a_command() -> None:
    settings: dict[str, Any] = {
        "members": ["a", "soft(b, c)"],
        "sigma": "0.5",
        "singles": True,
        "prefixes": False,
        "autotune": False,
        "limit": None,
        "mean": "-0.1,0",
    }
    expected = ["--members", "a,soft(b, c)", "--sigma", "0.5", "--singles", "--no-autotune", "--mean=-0.1,0"]
    assert words_of("certify", settings) == expected
    assert words_of("train", {"set": {"rho1": "0.5", "copies": "2"}}) == ["--set", "rho1=0.5", "--set", "copies=2"]
    with pytest.raises(ArgumentError, match="autotune must be true or false"):
        words_of("certify", {"no-autotune": True})
    with pytest.raises(ArgumentError, match="Did you mean sigma"):
        words_of("certify", {"sigm": "1"})
    with pytest.raises(ArgumentError, match="true or false"):
        words_of("certify", {"singles": "yes"})
    with pytest.raises(ArgumentError, match="must be a text"):
        words_of("certify", {"vote": [["soft"]]})


def test_words_of_a_command_become_settings() -> None:
    words = ["--sigma=0.5", "--N", "10", "--singles", "--no-autotune", "--n", "20", "--vote", "soft,hard"]
    assert settings_of("certify", words) == {
        "sigma": "0.5",
        "n": "20",
        "singles": True,
        "autotune": False,
        "vote": "soft,hard",
    }
    assert settings_of("train", ["--set", "a=1", "--set", "b=2"]) == {"set": ["a=1", "b=2"]}
    for wrong, match in (
        (["stray"], "belongs to none"),
        (["--sigma"], "must have a value"),
        (["--sgma", "1"], "sigma"),
    ):
        with pytest.raises(ArgumentError, match=match):
            settings_of("certify", wrong)


def test_a_command_is_checked_without_being_run(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    assert job_of(["certify", "--sigma", "0.5", "--out", out]).certification.noise.sigma == 0.5
    assert len(job_of(["train", "--data", "absent", "--members", "2", "--out", out]).job.members) == 2
    assert not Path(out).exists()
    for words, match in (
        (["certify", "--sigma", "-1"], "sigma"),
        (["certify", "--sigma", "much"], "valid number"),
        (["certify", "--sgima", "1"], "sgima"),
        (["certify", "--sigma", "0.5", "--radius", "9"], "radius"),
        (["train", "--data", "d", "--objective", "none"], "objective"),
    ):
        with pytest.raises(ArgumentError, match=match):
            job_of([*words, "--out", out])


def test_every_problem_of_a_file_is_told(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "certify: [{name: a, settings: {sigma: -1}}, {name: b, settings: {sgima: 1}}]\ntrain: [{name: c}]\n"
    )
    told = call("sweep", file, "--list", code=2).output
    for part in ("3 problems", "certify a: sigma: must be", "Did you mean sigma?", "train c: train: must be"):
        assert part in told, part
    assert "Traceback" not in told


def test_a_problem_that_ends_in_a_question_has_no_full_stop_behind_it(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("certify: [{name: a, settings: {sgima: 1}}]\n")
    assert "Did you mean sigma? See docs/sweep.md." in " ".join(call("sweep", file, "--list", code=2).output.split())


@pytest.mark.parametrize("words", [["--budget", "soon"], ["--budget", "-3m"], ["--side-by-side", "0"], ["--only", "x"]])
def test_options_out_of_range_are_refused(call: Call, small: Path, tmp_path: Path, words: list[str]) -> None:
    assert words[0] in call("sweep", small, "--out", tmp_path / "out", *words, code=2).output
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_listed_planned_run_and_reported(call: Call, small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    listed = call("sweep", small, "--only", "n1", "--list").stdout
    assert listed == "ringfence certify --sigma 0.5 --limit 2 --n 100 --batch 100 --out runs/n100\n"
    every = json.loads(call("sweep", small, "--list", "--json").stdout)["jobs"]
    assert [job["name"] for job in every] == ["n100", "n200", "broken"]
    plan = json.loads(call("sweep", small, "--out", out, "--plan", "--json").stdout)
    assert [(row["name"], row["jobs"], row["minutes"]) for row in plan["rows"]] == [
        ("n{n}", 2, None),
        ("broken", 1, None),
    ]
    assert plan["minutes"] is None, "one of unknown length is not one of none"
    assert call("sweep", small, "--out", out, "--plan").stdout.splitlines()[-1].split() == ["all", "3", "0", "?", "?"]
    assert not out.exists()
    found = call("sweep", small, "--out", out, "--side-by-side", 2, "--json", "--pack", tmp_path / "packed", code=1)
    answer = json.loads(found.stdout)
    assert {job["name"]: job["state"] for job in answer["jobs"]} == {"n100": "done", "n200": "done", "broken": "failed"}
    assert "here/absent.npz: must exist" in found.stderr
    assert {run["path"] for run in answer["report"]["runs"]} == {"n100", "n200"}
    assert (out / "report.html").stat().st_size > 10_000
    assert rf.RunFolder.open(out / "runs" / "n200").config.classifier.tree == "default"
    plan = json.loads(call("sweep", small, "--out", out, "--plan", "--json").stdout)
    assert plan["done"] == 2
    moved = tmp_path / "moved"
    again = call("sweep", small, "--out", moved, "--only", "n", "--unpack", tmp_path / "packed", "--budget", "0s")
    assert "0 of 2 jobs to do" in again.stderr


def test_what_lies_there_of_other_settings_is_named_and_kept(call: Call, tmp_path: Path) -> None:
    file, out = tmp_path / "one.yaml", tmp_path / "out"
    text = "certify: [{name: a, settings: {sigma: 0.5, limit: 1, n: 100, batch: 100}}]"
    file.write_text(text)
    call("sweep", file, "--out", out)
    file.write_text(text.replace("n: 100", "n: 200"))
    told = " ".join(call("sweep", file, "--out", out, code=1).stderr.split())
    assert f"{out / 'runs' / 'a'} is of other settings: delete it, or give the job another name" in told
    assert rf.RunFolder.open(out / "runs" / "a").read()[0].draws == 200


def test_without_what_a_report_needs_the_rest_is_told(
    call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ArgumentError("report", "needs altair", "none", "Install it.")

    monkeypatch.setattr("ringfence.cli.sweep.write_report", refuse)
    found = call("sweep", small, "--out", tmp_path / "out", "--only", "n100", "--json")
    assert json.loads(found.stdout)["report"] is None
    assert "no report" in found.stderr


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_ctrl_c_during_the_last_report_stops_it(
    call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, json_too: tuple[str, ...]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ringfence.report.page.report_page", interrupted)
    found = call("sweep", small, "--out", tmp_path / "out", "--only", "n100", *json_too, code=130)
    assert "stopped by Ctrl-C" in found.stderr
    assert "no report" not in found.stderr
    assert found.stdout == ""


def test_the_default_folder_is_named_after_the_file_and_tiny_has_its_own(
    call: Call, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--tiny"]):
        assert "not finished" in call("sweep", small, "--budget", "0s", *words, code=3).stderr
    assert sorted(path.name for path in Path("runs").iterdir()) == ["small", "small-tiny"]
    small.write_text("data: the digits\n" + SMALL)
    told = call("sweep", small, "--out", tmp_path / "new", code=2).stderr
    assert "--data: small.yaml needs a folder with the digits" in told


@contextmanager
def stderr_on_a_terminal() -> Iterator[None]:
    ours, theirs = pty.openpty()
    before = os.dup(2)
    os.dup2(theirs, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        for one in (before, ours, theirs):
            os.close(one)


def test_a_worker_runs_command_after_command_in_one_process(tmp_path: Path, endless: tuple[list[str], Path]) -> None:
    worker = Worker(PROGRAM)

    def code(*words: str) -> int:
        worker.begin([["certify", "--sigma", "0.5", "--limit", "1", "--batch", "100", *words]], tmp_path, Path("log"))
        while (found := worker.code()) is None:
            time.sleep(0.02)
        return found

    with stderr_on_a_terminal():
        assert code("--no-such-option") == 2
    assert "no-such-option" in (tmp_path / "log").read_text()
    process = worker._process
    assert code("--n", "0", "--out", "refused") == 2
    assert (tmp_path / "log").read_text().startswith("error: "), "no colours in a log"
    assert code("--n", "100", "--out", "one") == 0
    assert (tmp_path / "one" / "summary.json").exists()
    assert worker._process is process
    worker.begin([["certify", "--sigma", "0.5", "--batch", "100", *endless[0]]], tmp_path, Path("log"))
    while not endless[1].exists():
        assert worker.code() is None, (tmp_path / "log").read_text()
        time.sleep(0.02)
    assert worker.end() == 130
    assert "stopped by Ctrl-C" in (tmp_path / "log").read_text()
    assert "Traceback" not in (tmp_path / "log").read_text()


def workers_of(out: Path) -> list[int]:
    """Processes whose folder is that of the sweep."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.readlink(entry / "cwd") == str(out.resolve()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def until(what: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 600
    while not what():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "more"),
    [(signal.SIGKILL, -9, []), (signal.SIGTERM, 143, ["--tiny"]), (signal.SIGINT, 130, ["--tiny"])],
    ids=["SIGKILL", "SIGTERM", "SIGINT"],
)
def test_the_drt_example_is_killed_resumed_and_reported(
    program: Start, tmp_path: Path, number: signal.Signals, code: int, more: list[str]
) -> None:
    out = tmp_path / "drt"
    words = ["sweep", EXAMPLE, "--out", out, "--side-by-side", "2", "--json", *more]
    first = program(*words)
    until(lambda: any((out / "zoo" / "digits").glob("gaussian/member-*/last.json")), first)
    first.send_signal(number)
    first.communicate(timeout=600)
    assert first.returncode == code
    until(lambda: not workers_of(out))  # they hear that nobody speaks to them any more
    assert any((out / "zoo" / "digits").glob("gaussian/member-*/last.json"))
    second = program(*words)
    answer, errors = second.communicate(timeout=3000)
    assert second.returncode == 0, errors
    found = json.loads(answer)
    assert {job["state"] for job in found["jobs"]} == {"done"}
    lanes = {(run["path"], run["lane"]) for run in found["report"]["runs"]}
    votes = ("soft-5", "max-margin-5")
    assert lanes == {(net, vote) for net in ("gaussian", "drt-0.2", "drt-1.0") for vote in votes}
    assert len(list((out / "zoo" / "digits" / "drt-0.2").glob("final-*.safetensors"))) == 5
    assert (out / "report.html").exists()


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_work_goes_to_a_machine_without_network_and_comes_back(call: Call, tmp_path: Path) -> None:
    here, there, data = tmp_path / "here", tmp_path / "there", tmp_path / "data"
    data.mkdir()
    digits = load_dataset("default")
    images = np.stack([np.rint(255 * one.x.numpy()).astype(np.uint8) for one in itertools.islice(digits, 4)])
    np.savez(data / "four.npz", x=images[:, 0], y=[one.label for one in itertools.islice(digits, 4)])
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    settings = "{sigma: 0.5, limit: 2, n: 100, batch: 100, data: data/four.npz}"
    first.write_text(
        f"data: four.npz\ncertify: [{{name: a, settings: {settings}}}, {{name: b, settings: {settings}}}]\n"
    )
    second.write_text("certify: [{name: c, settings: {sigma: 0.5, limit: 2, n: 100, batch: 100}}]\n")
    words = (f"{first}:b", second, first)
    call(
        "sweep", *words, "--data", data, "--out", here, "--only", "a,c", "--phase", "certify", "--budget", "0s", code=3
    )
    call("sweep", f"{first}:a", "--data", data, "--out", here / "first")
    told = call("sweep", *words, "--data", data, "--out", here, "--carry", tmp_path / "carry", "--libraries", "typer")
    assert "four.npz" in told.stderr
    assert "carry: " in told.stderr
    carried = tmp_path / "carry" / "1"
    common = ("--unpack", carried, "--data", there / "data", "--out", there)
    planned = json.loads(call("sweep", *words, "--plan", "--json", *common).stdout)
    assert [(row["name"], row["done"]) for row in planned["rows"]] == [("b", 0), ("c", 0), ("a", 1)]
    assert json.loads(call("sweep", *words, "--plan", "--json", "--out", there).stdout)["done"] == 0
    assert not there.exists(), "what is only planned makes nothing"
    ran = call("sweep", *words, *common, "--budget", "9m", "--pack", tmp_path / "OUT", "--json")
    states = {job["name"]: job["state"] for job in json.loads(ran.stdout)["jobs"]}
    assert states == {"b": "done", "c": "done", "a": "done"}
    assert list(states) == ["b", "c", "a"], "in the order asked for"
    assert not (there / "first" / "runs" / "a").exists(), "what was done here was not done again"
    before = contents(here)
    planned = json.loads(call("sweep", *words, "--plan", "--json", "--out", here, "--unpack", tmp_path / "OUT").stdout)
    assert planned["done"] == 3, "what is here and what came back"
    assert contents(here) == before, "what is only planned changes nothing"
    back = call("sweep", *words, "--data", data, "--out", here, "--unpack", tmp_path / "OUT", "--budget", "0s")
    assert "0 of 3 jobs to do" in back.stderr
    kept = call("sweep", first, "--plan", "--json", "--kept", here / "first" / "runs", "--out", tmp_path / "kept")
    assert json.loads(kept.stdout)["done"] == 2
    assert not (tmp_path / "kept").exists()
    assert {path.name for path in here.glob("*/runs/*")} == {"a", "b", "c"}
    assert "must differ in their names" in call("sweep", first, tmp_path / "x" / "first.yaml", code=2).output
    assert "carry_mib" in call(
        "sweep", *words, "--carry", tmp_path / "carry", "--carry-mib", "0", code=2
    ).output.replace("-", "_")

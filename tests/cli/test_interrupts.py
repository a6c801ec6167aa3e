"""Stopped by Ctrl-C or killed at any moment: the same command continues to the same records."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import ringfence as rf
from ringfence.store import StoreWarning
from ringfence.surroundings import hear_interrupts

Start = Callable[..., subprocess.Popen[str]]
Call = Callable[..., Result]
WAIT = 300


def command(out: Path, limit: int, n: int) -> list[object]:
    return ["certify", "--sigma", 0.5, "--n", n, "--limit", limit, "--batch", 100, "--out", out, "--json"]


def facts(out: Path) -> list[dict[str, Any]]:
    """Every row, of a run that may not be whole yet but has nothing that its manifest does not describe."""
    run = rf.RunFolder.open(out)
    with warnings.catch_warnings(action="ignore", category=StoreWarning):
        rows = run.records().drop_columns(["seconds"]).to_pylist()
    assert run.problems == {}
    return list(rows)


def unverified(out: Path) -> list[object]:
    """What verify finds; that it holds nothing yet is no finding here."""
    return [one for one in rf.verify(rf.RunFolder.open(out), partial=True) if "nothing was verified" not in one.what]


def uninterrupted(call: Call, like: Path, out: Path, limit: int, n: int) -> list[dict[str, Any]]:
    """Records of the whole run at the forward shape that the other one measured for itself."""
    before = rf.RunFolder.open(like)
    rf.RunFolder.create_or_resume(out, before.config).add_forward_plan(before.forward_plans()[-1])
    call(*command(out, limit, n))
    return facts(out)


def begun(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until sampling begins."""
    deadline = time.monotonic() + WAIT
    while not (out / "forward.json").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def written(process: subprocess.Popen[str], out: Path) -> None:
    """Wait until the first records are there."""
    deadline = time.monotonic() + WAIT
    while not any((out / "parts").glob("part-*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


LONG = """
import time
from ringfence.cli import main
from ringfence.store.writer import RecordWriter
add = RecordWriter.add
def slowly(self, records):
    add(self, records)
    time.sleep(60)
RecordWriter.add = slowly
main()
"""
"""A run that no signal comes too late for, however busy the machine is."""


def interrupted(out: Path, limit: int, n: int, number: signal.Signals) -> tuple[int, str, str]:
    """The exit code, output and errors of a long run that is sent a signal."""
    words = [sys.executable, "-c", LONG, *map(str, command(out, limit, n))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, preexec_fn=hear_interrupts, **pipes) as process:
        begun(process, out)
        process.send_signal(number)
        output, errors = process.communicate(timeout=WAIT)
    return process.returncode, output, errors


def test_ctrl_c_ends_cleanly_and_says_how_to_continue(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, output, errors = interrupted(out, 20, 1000, signal.SIGINT)
    assert code == 130, errors
    assert output == ""
    assert "stopped by Ctrl-C" in errors
    assert "Run the same command again to continue" in errors
    assert "Traceback" not in errors
    assert len(facts(out)) < 20
    assert json.loads(call(*command(out, 20, 1000)).stdout)["count"] == 20
    assert facts(out) == uninterrupted(call, out, tmp_path / "whole", 20, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments(program: Start, call: Call, tmp_path: Path, seed: int) -> None:
    out, rng, limit, n = tmp_path / "run", random.Random(seed), 40, 5000
    done = [0]
    for attempt in range(60):
        process = program(*command(out, limit, n))
        if attempt == 0:  # once in the midst of its records, however fast the machine is
            written(process, out)
            process.kill()
        try:
            process.wait(timeout=rng.uniform(0.5, 6.0 + attempt))  # longer and longer, so that slow machines end too
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        if (out / "config.json").exists():
            done.append(len(facts(out)))
    assert process.returncode == 0
    assert done == sorted(done)  # nothing that was written is ever lost
    assert any(0 < count < limit for count in done)
    assert facts(out) == uninterrupted(call, out, tmp_path / "whole", limit, n)
    assert unverified(out) == []


def test_sigterm_ends_like_ctrl_c(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, output, errors = interrupted(out, 20, 1000, signal.SIGTERM)
    assert code == 143, errors
    assert output == ""
    assert "stopped by SIGTERM" in errors
    assert "Run the same command again to continue" in errors
    assert "Traceback" not in errors
    assert unverified(out) == []


SLOW_TO_STOP = """
import sys, time
from ringfence.cli import app, main
from ringfence.store.writer import RecordWriter
whole = RecordWriter.__exit__
def slow(self, *error):
    print("flushing", file=sys.stderr, flush=True)
    time.sleep(60)
    return whole(self, *error)
RecordWriter.__exit__ = slow
main()
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_without_a_traceback(tmp_path: Path, second: signal.Signals) -> None:
    out = tmp_path / "run"
    words = [sys.executable, "-c", SLOW_TO_STOP, *map(str, command(out, 50, 5000))]
    with subprocess.Popen(words, text=True, stderr=subprocess.PIPE, preexec_fn=hear_interrupts) as process:
        assert process.stderr is not None
        begun(process, out)
        process.send_signal(signal.SIGINT)
        while "flushing" not in (line := process.stderr.readline()):
            assert line, "it ended too early"
        process.send_signal(second)
        errors = process.stderr.read()
        assert process.wait(timeout=WAIT) == 128 + second, errors
    assert "stopped at once" in errors
    assert "Traceback" not in errors
    assert unverified(out) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "imported", ["typing_extensions", "rich.console", "numpy.linalg", "torch.nn", "ringfence.driver"]
)
def test_a_signal_while_libraries_are_imported_ends_at_once(
    tmp_path: Path, imported: str, number: signal.Signals
) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "ringfence", *map(str, command(tmp_path / "run", 50, 5000))]
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "preexec_fn": hear_interrupts}
    with subprocess.Popen(words, text=True, **options) as process:
        assert process.stderr is not None
        while not (line := process.stderr.readline()).endswith(f" {imported}\n"):
            assert line, "it ended too early"
        process.send_signal(number)
        errors = process.stderr.read()
        assert process.wait(timeout=WAIT) == 128 + number, errors
    assert "Traceback" not in errors
    assert "stopped" in errors


SWALLOWED = """
import signal, sys, time
from ringfence.signals import stopped_cleanly
class Careless:
    def __del__(self):
        signal.raise_signal(signal.{signal})
with stopped_cleanly():
    {body}
    print("went on", flush=True)
"""


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("Careless()", ""),  # Python ignores what a destructor raises: there is nobody left to stop cleanly
        ("try: signal.raise_signal(signal.{signal})\n    except KeyboardInterrupt: pass", "went on\n"),
        ("try: signal.raise_signal(signal.{signal})\n    except KeyboardInterrupt: raise ValueError from None", ""),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_somebody_swallows_still_shows_in_the_exit_code(
    body: str, output: str, number: signal.Signals
) -> None:
    code = SWALLOWED.replace("{body}", body).replace("{signal}", number.name)
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, preexec_fn=hear_interrupts)
    assert done.returncode == 128 + number, done.stderr
    assert done.stdout == output
    assert "Traceback" not in done.stderr


def test_a_second_command_does_not_touch_a_live_run(program: Start, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = program(*command(out, 5, 10_000_000))  # so long that no record is written yet
    begun(process, out)
    before = (out / "config.json").read_bytes()
    again = call("certify", "--sigma", 1.0, "--out", out, code=2)
    assert process.poll() is None, "the first run must outlast the second command"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT)
    assert "one writer" in again.stderr
    assert (out / "config.json").read_bytes() == before

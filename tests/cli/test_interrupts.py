"""Stopped by Ctrl-C or killed at any moment: the same command continues to the same records."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import ringfence as rf
from ringfence.beginning import hear_interrupts
from ringfence.store import StoreWarning

Start = Callable[..., subprocess.Popen[str]]
Held = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
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


def test_ctrl_c_ends_cleanly_and_says_how_to_continue(held: Held, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with held(*command(out, 20, 1000)) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=WAIT)
        code = process.returncode
    assert code == 130, errors
    assert output == ""
    assert "stopped by Ctrl-C" in errors
    assert "Run the same command again to continue" in errors
    assert "Traceback" not in errors
    assert len(facts(out)) == 1, "what it held is written"
    assert json.loads(call(*command(out, 20, 1000)).stdout)["count"] == 20
    assert facts(out) == uninterrupted(call, out, tmp_path / "whole", 20, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_random_moments(program: Start, held: Held, call: Call, tmp_path: Path, seed: int) -> None:
    out, rng, limit, n = tmp_path / "run", random.Random(seed), 40, 5000
    with held(*command(out, limit, n), at="written"):  # and killed: once in the midst of its records
        pass
    done = [len(facts(out))]
    assert 0 < done[0] < limit
    for attempt in range(12):
        process = program(*command(out, limit, n))
        try:
            process.wait(timeout=rng.uniform(0.5, 6.0 + attempt))
        except subprocess.TimeoutExpired:
            process.kill()
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors
        done.append(len(facts(out)))
        if process.returncode == 0:
            break
    call(*command(out, limit, n))  # to its end, where the machine was too slow for that
    assert done == sorted(done)  # nothing that was written is ever lost
    assert facts(out) == uninterrupted(call, out, tmp_path / "whole", limit, n)
    assert unverified(out) == []


def test_sigterm_ends_like_ctrl_c(held: Held, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with held(*command(out, 20, 1000)) as process:
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=WAIT)
        assert process.returncode == 143, errors
    assert output == ""
    assert "stopped by SIGTERM" in errors
    assert "Run the same command again to continue" in errors
    assert "Traceback" not in errors
    assert unverified(out) == []


SLOW_TO_STOP = """
def slow(self, *error):
    print("flushing", file=sys.stderr, flush=True)
    time.sleep(600)
RecordWriter.__exit__ = slow
"""


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_without_a_traceback(held: Held, tmp_path: Path, second: signal.Signals) -> None:
    out = tmp_path / "run"
    with held(*command(out, 50, 5000), more=SLOW_TO_STOP) as process:
        assert process.stderr is not None
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


def test_a_second_command_does_not_touch_a_live_run(held: Held, call: Call, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with held(*command(out, 5, 1000), at="made"):  # a run without records may be begun anew, if nobody writes it
        before = {file.name: file.read_bytes() for file in out.rglob("*") if file.is_file()}
        again = call("certify", "--sigma", 1.0, "--out", out, code=2)
        assert "one writer" in again.stderr
        assert {file.name: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before

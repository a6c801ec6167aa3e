"""Where what is printed goes: to nobody, or to a disk that is full. Neither is what a command answers about a run."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ringfence.cli import console

PROGRAM = (sys.executable, "-m", "ringfence")
FULL = Path("/dev/full")
COMMANDS = (("metrics",), ("metrics", "--json"), ("verify",), ("export", "csv"))
HELPS = ((), ("--help",), ("--version",), ("zoo", "--help"), ("certify", "--help"), ("certify", "--help-all"))


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads, as behind ``| head``."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nobody_reads_on(finished: dict[str, Path], words: tuple[str, ...], unread: int) -> None:
    """No error, and an exit code of its own, for 1 and 2 speak of the run."""
    ended = subprocess.run([*PROGRAM, *words, str(finished["fixed"])], stdout=unread, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_nobody_reads_a_help(words: tuple[str, ...], unread: int) -> None:
    ended = subprocess.run([*PROGRAM, *words], stdout=unread, stderr=subprocess.PIPE)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_nobody_reads_what_is_wrong(unread: int) -> None:
    ended = subprocess.run([*PROGRAM, "nonsense"], stdout=subprocess.PIPE, stderr=unread)
    assert (ended.returncode, ended.stdout) == (141, b"")


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_told(finished: dict[str, Path], words: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        ended = subprocess.run([*PROGRAM, *words, str(finished["fixed"])], stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 2
    assert ended.stderr.decode().startswith("error: standard output: must be written; got No space left on device.")
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")
def test_a_full_disk_for_errors_too_is_no_answer(finished: dict[str, Path]) -> None:
    with FULL.open("w") as full:
        ended = subprocess.run([*PROGRAM, "verify", str(finished["fixed"])], stdout=full, stderr=full)
    assert ended.returncode == 2


def test_a_terminal_that_was_closed_is_no_answer(finished: dict[str, Path]) -> None:
    """As of a program that outlives its terminal (disown)."""
    ours, terminal = pty.openpty()
    os.close(ours)
    try:
        for words in COMMANDS:
            ended = subprocess.run([*PROGRAM, *words, str(finished["fixed"])], stdout=terminal, stderr=subprocess.PIPE)
            assert (ended.returncode, ended.stderr.count(b"\n")) == (2, 1), words
            assert ended.stderr.startswith(b"error: standard output: must be written; got Input/output error.")
        ended = subprocess.run([*PROGRAM, "verify", str(finished["fixed"])], stdout=terminal, stderr=terminal)
        assert ended.returncode == 2
    finally:
        os.close(terminal)


@pytest.mark.parametrize("terminal", [True, False])
def test_facts_are_broken_between_words_on_terminals_alone(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = StringIO()
    monkeypatch.setattr(console, "results", Console(file=shown, force_terminal=terminal, width=20, color_system=None))
    console.say_facts({"names": "first, second, third", "none": None})
    lines = ["names  first,", "       second, third"] if terminal else ["names  first, second, third"]
    assert shown.getvalue().splitlines() == [*lines, "none   none"]


def test_what_libraries_tell_their_programmers_is_not_told_to_users(capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of a .pt2 makes torch deprecate itself, once for every copy."""
    with warnings.catch_warnings(action="default"), console.friendly():
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated", FutureWarning, stacklevel=1)
        warnings.warn("something is wrong with the data", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: something is wrong with the data\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("words", [*COMMANDS, ("compare",)], ids=" ".join)
def test_an_encoding_that_lacks_signs(
    finished: dict[str, Path], tmp_path: Path, words: tuple[str, ...], encoding: str
) -> None:
    """What it lacks is written out: it ended metrics, and verify with 1, which speaks of the run."""
    run = shutil.copytree(finished["fixed"], tmp_path / "Läufe ≥")
    ended = subprocess.run(
        [*PROGRAM, *words, str(run)], capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    shown = ended.stdout.decode(encoding)
    if words == ("verify",):
        written = "Läufe ≥".encode(encoding, "backslashreplace").decode(encoding)
        assert written in shown
    if words == ("metrics",):
        assert ("▅" in shown) is (encoding == "utf-8")
        assert "\\u" not in shown.replace("\\u2265", "")

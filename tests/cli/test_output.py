"""Where what is printed goes: to nobody, or to a disk that is full. Neither is what a command answers about a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = (sys.executable, "-m", "ringfence")
FULL = Path("/dev/full")
COMMANDS = (("metrics",), ("metrics", "--json"), ("verify",), ("export", "csv"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_nobody_reads_on(finished: dict[str, Path], words: tuple[str, ...]) -> None:
    """As behind ``| head``: no error, and an exit code of its own, for 1 and 2 speak of the run."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run([*PROGRAM, *words, str(finished["fixed"])], stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, b"")


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

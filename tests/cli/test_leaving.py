"""The program ends at once and loses nothing: exit codes, output, threads, and what was to be done at its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LEAVES = """
import atexit, threading
from concurrent.futures import ThreadPoolExecutor
from ringfence.signals import leave
leaving = threading.Event()
threading._register_atexit(leaving.set)  # called when Python begins to wait for threads
def slow():
    leaving.wait()
    print("thread")
atexit.register(print, "at the end")
threading.Thread(target=slow).start()
ThreadPoolExecutor(1).submit(print, "pool").result()
print("last", end="")
leave(7)
"""


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300, check=False)


def test_nothing_is_lost() -> None:
    done = ran("-c", LEAVES)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "pool\nlastthread\nat the end\n"


def test_where_nobody_reads_python_ends_the_program() -> None:
    done = ran("-c", "import sys; from ringfence.signals import leave; sys.stdout.close(); leave(3); sys.exit(4)")
    assert done.returncode == 4


@pytest.mark.parametrize(("words", "code", "told"), [(["--version"], 0, "ringfence"), (["nonsense"], 2, "nonsense")])
def test_commands_end_as_before(words: list[str], code: int, told: str) -> None:
    done = ran("-m", "ringfence", *words)
    assert done.returncode == code
    assert told in done.stdout + done.stderr


def test_files_that_users_code_left_open_are_whole(tmp_path: Path) -> None:
    (tmp_path / "left_open.py").write_text(f"file = open({str(tmp_path / 'file')!r}, 'w')\nfile.write('all of it')\n")
    done = ran("-m", "ringfence", "--plugin", str(tmp_path / "left_open.py"), "info", str(tmp_path))
    assert done.returncode == 2, done.stderr
    assert (tmp_path / "file").read_text() == "all of it"


CERTIFY = "certify --model default --data default --sigma 0.5 --limit 1 --n0 10 --n 20"


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_stop_nothing(closed: str, tmp_path: Path) -> None:
    """Their numbers would be those of the next files, and 1 is an answer about a run."""
    out = tmp_path / "run"
    command = f'"$0" -m ringfence {CERTIFY} --out "$1" {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable, str(out)], timeout=300, check=False)
    assert done.returncode == 0
    assert (out / "summary.json").is_file()


def test_a_working_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    gone, command = tmp_path / "gone", f'cd "$1" && rmdir "$1" && exec "$0" -m ringfence {CERTIFY} --out run'
    gone.mkdir()
    asked = ["sh", "-c", command, sys.executable, str(gone)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "error: working folder: must exist; got one that was removed. Change to another folder and run it again.\n"
    )

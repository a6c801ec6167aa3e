"""Mutants: single changes to code that a guarantee rests on, each with tests that must fail under it.

The ``*.toml`` beside this file list them: file (below src/ringfence), text (found there exactly once), becomes, and
tests (below tests/). A fast test keeps the list honest when code moves; a slow one breaks a copy of the source and
runs the named tests on it: a mutant that survives is a guarantee that no test guards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src" / "ringfence"
FAILED = 1
"""Pytest's exit status where tests ran and some failed; no test found, or none that could be read, is another."""


class Mutant(NamedTuple):
    """One change to one file, and where it must be noticed."""

    name: str
    file: str
    text: str
    becomes: str
    tests: list[str]


def mutants() -> list[Mutant]:
    return [Mutant(**one) for path in sorted(HERE.glob("*.toml")) for one in tomllib.loads(path.read_text())["mutant"]]


MUTANTS = mutants()
each = pytest.mark.parametrize("mutant", MUTANTS, ids=[one.name for one in MUTANTS])


def test_there_are_many_and_no_two_alike() -> None:
    assert len(MUTANTS) >= 60
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)
    assert len({(one.file, one.text, one.becomes) for one in MUTANTS}) == len(MUTANTS)


@each
def test_every_mutant_still_applies(mutant: Mutant) -> None:
    assert (SOURCE / mutant.file).read_text().count(mutant.text) == 1
    assert mutant.becomes != mutant.text
    assert mutant.tests
    for test in mutant.tests:
        path, _, rest = test.partition("::")
        name = rest.partition("[")[0]
        assert f"def {name}(" in (ROOT / "tests" / path).read_text()


class Preloaded:
    """The process in whose forks tests are run (``preloaded.py``)."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self.server = server

    def run(self, source: Path, tests: Iterable[str], folder: Path) -> tuple[int, str, str]:
        """Pytest's status, output and errors, where these tests are run on this source."""
        alone = ["-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder / 't'}"]  # cleans up after no other
        arguments = ["-x", *alone, *(f"tests/{test}" for test in tests)]
        output, errors = folder / "output", folder / "errors"
        job = {"source": str(source), "arguments": arguments, "output": str(output), "errors": str(errors)}
        assert self.server.stdin
        assert self.server.stdout
        print(json.dumps(job), file=self.server.stdin, flush=True)
        return int(self.server.stdout.readline()), output.read_text(), errors.read_text()


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_") and key != "PYTHONPATH"}
    env["HYPOTHESIS_STORAGE_DIRECTORY"] = str(tmp_path_factory.mktemp("hypothesis"))
    command = [sys.executable, "-m", "tests.mutants.preloaded"]  # as python -m pytest finds what is here
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=pipe, stdout=pipe, text=True) as server:
        yield Preloaded(server)


def copied(folder: Path) -> Path:
    """The package, elsewhere; compiled files and times come along, so that only a mutant is compiled anew.

    Not those that another process is just writing, under a name that is gone a moment later.
    """
    writing = shutil.ignore_patterns("*.pyc.*")
    return Path(shutil.copytree(SOURCE, folder / "src" / "ringfence", ignore=writing))


@pytest.mark.slow
def test_without_a_mutant_all_the_tests_pass(tmp_path: Path, preloaded: Preloaded) -> None:
    tests = dict.fromkeys(test for one in MUTANTS for test in one.tests)
    status, output, errors = preloaded.run(copied(tmp_path).parent, tests, tmp_path)
    assert status == 0, f"{output[-3000:]}\n{errors[-1000:]}"


@pytest.mark.slow
@each
def test_every_mutant_is_caught(mutant: Mutant, tmp_path: Path, preloaded: Preloaded) -> None:
    copy = copied(tmp_path)
    file = copy / mutant.file
    source = file.read_text()
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    file.write_text(source.replace(mutant.text, mutant.becomes))
    status, output, errors = preloaded.run(copy.parent, mutant.tests, tmp_path)
    said = f"{mutant.name}:\n{output[-3000:]}\n{errors[-1000:]}"
    assert status == FAILED, said
    assert "1 failed" in output.splitlines()[-1], said  # a test, not its setting up
    shutil.rmtree(tmp_path)  # hundreds of copies would take minutes to clear away at the start of a later run

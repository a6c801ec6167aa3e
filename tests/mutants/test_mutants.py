"""Mutants: single changes to code that a guarantee rests on, each with tests that must fail under it.

The ``*.toml`` beside this file list them: file (below src/ringfence), text (found there exactly once), becomes, and
tests (below tests/). A fast test keeps the list honest when code moves; a slow one breaks a copy of the source and
runs the named tests on it: a mutant that survives is a guarantee that no test guards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
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


def bare(tests: list[str]) -> bool:
    """Whether the files of these tests need neither torch nor a conftest: without both they take a second, not four."""
    files = {ROOT / "tests" / test.partition("::")[0] for test in tests}
    heavy = ("import torch", "import ringfence as rf")
    return not any(
        word in file.read_text() or (file.parent / "conftest.py").exists() for file in files for word in heavy
    )


@pytest.mark.slow
@each
def test_every_mutant_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    copy = tmp_path / "src" / "ringfence"
    shutil.copytree(SOURCE, copy)  # compiled files and times come along, so that only the mutant is compiled anew
    file = copy / mutant.file
    source = file.read_text()
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
        compiled.unlink()
    file.write_text(source.replace(mutant.text, mutant.becomes))
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    if bare(mutant.tests):
        command += ["--noconftest", "-p", "no:hypothesispytest", "-o", "addopts=-q --import-mode=importlib"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, *(f"tests/{test}" for test in mutant.tests)],
        cwd=ROOT,
        env={**env, "PYTHONPATH": str(copy.parent), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = f"{mutant.name}:\n{done.stdout[-3000:]}\n{done.stderr[-1000:]}"
    assert done.returncode == FAILED, said
    assert "1 failed" in done.stdout.splitlines()[-1], said  # a test, not its setting up

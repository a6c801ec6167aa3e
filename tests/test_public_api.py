"""The public surface is what the documentation lists, and importing it costs nothing heavy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence
from ringfence.training import objectives

API = Path(__file__).resolve().parents[1] / "docs" / "api.md"


def test_the_documentation_lists_exactly_the_public_names() -> None:
    listed = re.findall(r"^- `([^`]+)`", API.read_text(), flags=re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted(ringfence.__all__)


@pytest.mark.parametrize("name", ringfence.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(ringfence, name) is not None
    assert name in dir(ringfence)


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'certfy'"):
        ringfence.certfy  # noqa: B018


def test_no_objective_has_the_name_of_something_else() -> None:
    """There were two Gaussians: a noise, and training under it."""
    shared = set(vars(objectives)) & set(ringfence.__all__)
    assert all(getattr(objectives, name) is getattr(ringfence, name) for name in shared)


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after the statement."""
    code = (
        f"import json, sys\ntry:\n    {statement}\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.strip().splitlines()[-1]))


HEAVY = {"torch", "numpy", "scipy", "pyarrow", "pandas", "matplotlib"}


def test_importing_ringfence_loads_nothing_heavy() -> None:
    assert loaded_after("import ringfence") & HEAVY == set()


@pytest.mark.parametrize("words", [["--help"], ["metrics", "--help"], ["attack", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    statement = f"from ringfence.cli import app; app({words!r})"
    assert loaded_after(statement) & HEAVY == set()


def test_options_of_procedures_are_told_without_torch() -> None:
    assert loaded_after("from ringfence.cli import app; app(['certify', '--help'])") & {"torch", "pyarrow"} == set()


def test_commands_start_without_the_compiler() -> None:
    """Loading torch's compiler takes longer than everything else a command imports, and most never use it."""
    script = "import sys, ringfence.job_file, ringfence.training.run; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0

"""The program's threads sleep while they wait for each other, unless its user wants it otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence

PROGRAM = """
import os, sys
from types import ModuleType
command_line = ModuleType("ringfence.cli")
command_line.main = lambda: print(os.environ.get("OMP_WAIT_POLICY"), "torch" in sys.modules)
sys.modules["ringfence.cli"] = command_line
from ringfence.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ({}, "PASSIVE"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
        ({"GOMP_SPINCOUNT": "1"}, None),
        ({"KMP_BLOCKTIME": "0"}, None),
    ],
)
def test_threads_wait_asleep_unless_the_user_says_otherwise(said: dict[str, str], policy: str | None) -> None:
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    environment = {**kept, "PYTHONPATH": str(Path(ringfence.__file__).parents[1]), **said}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [str(policy), "False"]  # said before torch, which loads OpenMP, is imported

"""How the program starts: torch is loaded by commands alone, and told how its threads are to wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ringfence import cli


def test_threads_wait_without_spinning_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "app", lambda: None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    cli.main()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    cli.main()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_torch_is_not_loaded_before_a_command_runs() -> None:
    code = "import sys, ringfence.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

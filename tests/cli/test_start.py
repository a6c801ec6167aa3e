"""How the program starts: torch and scipy are loaded by commands alone, not by their help."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_not_loaded_before_a_command_runs() -> None:
    code = "import sys, ringfence.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_help_waits_for_no_mathematics() -> None:
    code = """
import sys
from ringfence.cli import app
try:
    app(["certify", "--help"])
except SystemExit:
    sys.exit(bool({"torch", "scipy"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0

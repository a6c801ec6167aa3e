"""How the program starts: torch is loaded by commands alone."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_not_loaded_before_a_command_runs() -> None:
    code = "import sys, ringfence.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

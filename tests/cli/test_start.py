"""How the program starts: torch and scipy are loaded by commands alone, not by their help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from simulated_runs import simulated_run, spread

from ringfence.procedures import Fixed


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


@pytest.mark.parametrize(
    "command", ["metrics", "verify", "compare", "report --out page.html", "gate --certified 0.1@0"]
)
def test_what_reads_runs_waits_for_no_torch(tmp_path: Path, command: str) -> None:
    """It takes seconds to load, most of what these commands would take."""
    simulated_run(tmp_path / "run", Fixed(n=1000), spread(12), range(12))
    code = f"""
import sys
from ringfence.cli import app
try:
    app({[*command.split()[:1], "run", *command.split()[1:]]!r})
except SystemExit as over:
    print("ended with", over.code, "torch" if "torch" in sys.modules else "light")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.endswith("light\n"), done

"""Commands do with the installed extras what they promise: whatever no extra of theirs brings is hidden from them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUN = "certify --data default --sigma 0.5 --n0 10 --n 50 --skip 2000 --quiet --out"
BARE = f"""
info
plan --sigma 0.5 --radius 0.5
{RUN} a
{RUN} b --seed 1
predict --data default --sigma 0.5 --n 50 --skip 2000 --quiet --out p
verify a b p
gate a --certified 0.01@0.1
metrics a b
compare a b
info a
attack a --limit 1
rank --members default,default --data default --sigma 0.5 --limit 2
zoo list
simplex at 0.9 0.05
"""
"""README's and the first page's commands, as of somebody who installed nothing else."""
COMMANDS = {
    "": BARE,
    "train": "train --data default --arch lenet --sigma 0.5 --epochs 1 --limit 32 --batch 16 --out net",
    "report": f"{RUN} a\nreport a --out a.html\nplot a --out a.svg",
    "serve": f"{RUN} a\nkeygen key\nseal a --key key\nverify a --key key.pub",
}
PROGRAM = """
import shlex, sys
from importlib.machinery import PathFinder
hidden, find = set(sys.argv[1].split()), PathFinder.find_spec
PathFinder.find_spec = lambda name, *given: None if name.partition(".")[0] in hidden else find(name, *given)
from typer.testing import CliRunner
from ringfence.cli import app
for line in sys.argv[2].strip().splitlines():
    done = CliRunner().invoke(app, shlex.split(line))
    if done.exit_code:
        sys.exit(f"{line}: exit code {done.exit_code}\\n{done.output}\\n{done.exception!r}")
"""


def brought(requirements: Iterable[str]) -> set[str]:
    """Distributions that these bring, and those that they bring."""
    found, left = set[str](), list(requirements)
    while left:
        one = left.pop()
        name = re.split(r"[^\w.-]", one)[0].lower().replace("_", "-")
        if "extra ==" in one or name in found:
            continue
        found.add(name)
        try:
            left += requires(name) or []
        except PackageNotFoundError:  # for another system or Python
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("extra", COMMANDS)
def test_commands_need_no_more_than_their_extra(extra: str, tmp_path: Path) -> None:
    needed = brought([*PROJECT["dependencies"], *PROJECT["optional-dependencies"].get(extra, ())]) | {"ringfence"}
    owners = {
        module: {one.lower().replace("_", "-") for one in ones} for module, ones in packages_distributions().items()
    }
    hidden = [module for module, ones in owners.items() if not ones & needed and module not in sys.stdlib_module_names]
    assert "schemathesis" in hidden
    assert extra or {"PIL", "cryptography", "altair"} <= set(hidden)
    words = [sys.executable, "-c", PROGRAM, shlex.join(hidden), COMMANDS[extra]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

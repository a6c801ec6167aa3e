"""The wheel, alone: every file is in it, every public name imports, and it certifies digits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import ringfence

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ringfence"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-q", "-w", folder]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and nothing else of ours.

    Its dependencies are this environment's packages, offered as links one by one: a path entry to the whole folder
    would bring the editable install with it, and hide a file that is missing from the wheel.
    """
    place = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    theirs = place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    ours = Path(sysconfig.get_path("purelib"))
    for entry in ours.iterdir():
        name = entry.name.lower()
        if "ringfence" not in name and not name.endswith(".pth") and not (theirs / entry.name).exists():
            (theirs / entry.name).symlink_to(entry)
    python = place / "bin" / "python"  # pip runs in it, so that the program it writes starts this interpreter
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "-q", wheel], check=True, capture_output=True)
    return python


def run(python: Path, folder: Path, *command: str) -> str:
    """Standard output of a command in an empty folder, away from the checkout."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_file_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("ringfence/")}
    files = {
        str(path.relative_to(SOURCE.parent))
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == packed
    assert {"ringfence/py.typed", "ringfence/data/embedded/mnist500.npz"} <= packed


def test_every_public_name_imports_from_the_wheel(python: Path, tmp_path: Path) -> None:
    code = (
        "import json, ringfence as rf; missing = [name for name in rf.__all__ if getattr(rf, name, None) is None];"
        "print(json.dumps([rf.__file__, missing]))"
    )
    place, missing = json.loads(run(python, tmp_path, str(python), "-c", code))
    assert Path(place).is_relative_to(python.parents[1])
    assert missing == []


def test_the_installed_program_certifies_digits(python: Path, tmp_path: Path) -> None:
    program = str(python.with_name("ringfence"))
    assert Path(program).read_text().splitlines()[0].removeprefix("#!") == str(python)
    assert "certify" in run(python, tmp_path, program, "--help")
    assert run(python, tmp_path, program, "--version").strip() == f"ringfence {ringfence.__version__}"
    words = ["certify", "--sigma", "0.5", "--radius", "0.25", "--limit", "3", "--out", "run", "--json"]
    answer = json.loads(run(python, tmp_path, program, *words))
    assert answer["count"] == 3
    assert answer["certified_accuracy"]["0.25"] == 1.0
    assert "every claim follows" in run(python, tmp_path, program, "verify", "run")
    assert "mnist/gaussian-0.5" in run(python, tmp_path, program, "zoo", "list")

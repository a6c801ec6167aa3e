"""Measures the house: rooms, files and lines of src/ringfence, and the way of one certify, train and report through it.

    python tools/house.py [REF ...]

Without a REF the working tree; each REF is unpacked from git. Files: those whose functions run (imports do not count);
hops: the longest chain of calls from file to file; warm: those of the second such command in a process. Prints the
table of docs/decisions/0015-house-before-and-after.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "certify": ["certify", "--sigma", "0.5", "--radius", "0.5", "--limit", "2", "--batch", "100", "--out", "run"],
    "warm certify": ["certify", "--model", "default", "--sigma", "0.5", "--n", "100", "--limit", "2", "--out", "warm"],
    "train": ["train", "--arch", "lenet", "--data", "default", "--limit", "64", "--epochs", "1", "--out", "training"],
    "report": ["report", "run", "--out", "report.html"],
}


def sizes(source: Path) -> dict[str, int]:
    """Rooms (folders), files, lines, and those of the longest file."""
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source.rglob("*.py")}
    rooms = {path.relative_to(source).parts[0] for path in lines if path.parent != source}
    over = sum(count > 250 for count in lines.values())
    facts = {"rooms": len(rooms), "files": len(lines), "lines": sum(lines.values())}
    return {**facts, "files over 250 lines": over, "longest file": max(lines.values())}


def follow(words: list[str], source: str) -> dict[str, int]:
    """Run a command in this process and count what it passes through, on its main thread."""
    files: set[str] = set()
    chain: list[tuple[str, int]] = [("", 0)]
    longest = 0

    def seen(frame: Any, event: str, argument: object) -> None:
        nonlocal longest
        name = frame.f_code.co_filename
        if not name.startswith(source) or frame.f_code.co_name == "<module>":
            return
        if event == "call":
            files.add(name)
            above, hops = chain[-1]
            chain.append((name, hops + (name != above)))
            longest = max(longest, chain[-1][1])
        elif event == "return" and len(chain) > 1:
            chain.pop()

    from ringfence.cli import app

    if words[-1] == "warm":  # what is asked once in a process is not on the way of a certification
        app([*words[:-1], "first"], standalone_mode=False)
    sys.setprofile(seen)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(None)
    return {"files": len(files), "hops": longest}


def measured(tree: Path) -> dict[str, int]:
    """Every number of one state of the house."""
    found = sizes(tree / "src" / "ringfence")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in COMMANDS.items():
            environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "CUDA_VISIBLE_DEVICES": ""}
            call = [sys.executable, __file__, "--follow", str(tree / "src" / "ringfence"), *words]
            done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr[-2000:]}")
            told = json.loads(done.stdout.splitlines()[-1])
            found |= {f"{name}: {key}": value for key, value in told.items()}
    return found


def main() -> None:
    """Print the table, a column per state."""
    if sys.argv[1:2] == ["--follow"]:
        print("\n" + json.dumps(follow(sys.argv[3:], sys.argv[2])))
        return
    columns: dict[str, dict[str, int]] = {}
    for ref in sys.argv[1:] or ["working tree"]:
        if ref == "working tree":
            columns[ref] = measured(ROOT)
            continue
        with tempfile.TemporaryDirectory() as folder:
            packed = subprocess.run(["git", "archive", ref, "src"], cwd=ROOT, capture_output=True, check=True).stdout
            subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
            columns[ref] = measured(Path(folder))
    print("|  | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    for key in next(iter(columns.values())):
        print(f"| {key} | " + " | ".join(f"{column[key]:,}" for column in columns.values()) + " |")


if __name__ == "__main__":
    main()

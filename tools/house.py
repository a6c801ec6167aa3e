"""Measures the house: rooms, files and lines of src/ringfence, and the way of one certify, train and report through it.

    python tools/house.py [REF ...]
    python tools/house.py --way "warm certify"

Without a REF the working tree; each REF is unpacked from git. Files: those whose functions run (imports do not count);
hops: the longest chain of calls from file to file; warm: those of the second such command in a process. Prints the
table of docs/decisions/0015-house-before-and-after.md. --way lists the files that a command passes through in the
working tree, with the functions that it enters in each and their lines.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "certify": ["certify", "--sigma", "0.5", "--radius", "0.5", "--limit", "2", "--batch", "100", "--out", "run"],
    "warm certify": ["certify", "--model", "default", "--sigma", "0.5", "--n", "100", "--limit", "2", "--out", "warm"],
    "train": ["train", "--arch", "lenet", "--data", "default", "--limit", "64", "--epochs", "1", "--out", "training"],
    "report": ["report", "run", "--out", "report.html"],
}


def sizes(source: Path) -> dict[str, int]:
    """Rooms (folders), files, lines, how many of these are code, and those of the longest and the median file."""
    texts = {path: path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    lines = {path: len(text.splitlines()) for path, text in texts.items()}
    rooms = {path.relative_to(source).parts[0] for path in lines if path.parent != source}
    over = sum(count > 250 for count in lines.values())
    facts = {"rooms": len(rooms), "files": len(lines), "lines": sum(lines.values())}
    facts |= {"lines of code": sum(map(_code, texts.values()))}
    facts |= {"lines of cli": sum(count for path, count in lines.items() if path.parent.name == "cli")}
    middle = round(median(count for path, count in lines.items() if path.name != "__init__.py"))
    return {**facts, "files over 250 lines": over, "longest file": max(lines.values()), "median file": middle}


def _code(text: str) -> int:
    """Lines that are neither blank nor comment, nor of an import or a docstring."""
    found = {number for number, line in enumerate(text.splitlines(), 1) if line.strip() and line.strip()[0] != "#"}
    for node in ast.walk(ast.parse(text)):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if told or isinstance(node, ast.Import | ast.ImportFrom):
            found -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return len(found)


def follow(words: list[str], source: str) -> dict[str, Any]:
    """Run a command in this process and count what it passes through, on its main thread."""
    entered: dict[str, set[Any]] = {}
    chain: list[tuple[str, int]] = [("", 0)]
    longest = 0

    def seen(frame: Any, event: str, argument: object) -> None:
        nonlocal longest
        name = frame.f_code.co_filename
        if not name.startswith(source) or frame.f_code.co_name == "<module>":
            return
        if event == "call":
            entered.setdefault(name, set()).add(frame.f_code)
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
    way = {name.removeprefix(f"{source}/"): [len(codes), _lines(codes)] for name, codes in entered.items()}
    return {"files": len(entered), "hops": longest, "way": way}


def _lines(codes: set[Any]) -> int:
    """Lines with code in these functions."""
    return len({line for code in codes for _, _, line in code.co_lines() if line is not None})


def measured(tree: Path) -> dict[str, int]:
    """Every number of one state of the house."""
    found = sizes(tree / "src" / "ringfence")
    with tempfile.TemporaryDirectory() as folder:
        for name in COMMANDS:
            told = followed(tree, name, folder)
            found |= {f"{name}: {key}": told[key] for key in ("files", "hops")}
    return found


def followed(tree: Path, name: str, folder: str) -> dict[str, Any]:
    """What a command passes through, run in a process and a folder of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "CUDA_VISIBLE_DEVICES": ""}
    call = [sys.executable, __file__, "--follow", str(tree / "src" / "ringfence"), *COMMANDS[name]]
    done = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def print_way(name: str) -> None:
    """The files of a command's way, those first of which it enters least."""
    with tempfile.TemporaryDirectory() as folder:
        way = followed(ROOT, name, folder)["way"]
    print("| file | functions | their lines |\n|---|---|---|")
    for file, (functions, lines) in sorted(way.items(), key=lambda one: one[1][1]):
        print(f"| {file} | {functions} | {lines} |")


def main() -> None:
    """Print the table, a column per state."""
    if sys.argv[1:2] == ["--follow"]:
        print("\n" + json.dumps(follow(sys.argv[3:], sys.argv[2])))
        return
    if sys.argv[1:2] == ["--way"]:
        print_way(sys.argv[2])
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

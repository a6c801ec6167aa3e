"""Bars of size that hold: no file is longer than 400 lines, no function than 60 (docs/decisions/0015)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for room in ("src", "tools", "reproduce") for path in (ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    functions = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {one.name: (one.end_lineno or 0) - one.lineno + 1 for one in functions}
    assert {name: count for name, count in lines.items() if count > 60} == {}

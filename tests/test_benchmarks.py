"""Every benchmark runs, and its JSON holds what the documentation is made from. Nothing here judges a time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "benchmarks").glob("bench_*.py"))


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, timeout=300)


def test_the_core_has_its_four() -> None:
    core = {"bench_engine_cpu", "bench_sample_complexity", "bench_memory", "bench_procedure_overhead"}
    assert core <= {script.stem for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_quick_run_writes_valid_json(script: Path, tmp_path: Path) -> None:
    done = run(script, "--quick", "--repetitions", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (written,) = tmp_path.glob("*.json")
    assert written.stem == script.stem.removeprefix("bench_")
    result = json.loads(written.read_text())
    assert result["quick"] is True
    assert {"python", "torch", "numpy", "cpus", "cpu"} <= result["environment"].keys()
    assert result["measurements"]
    for table in result["tables"]:
        assert table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        assert all(row[0] in done.stdout for row in table["rows"])
    assert result["bars"]
    for bar in result["bars"]:
        measured, limit = bar["measured"], bar["limit"]
        holds = None if measured is None else measured <= limit if bar["relation"] == "at most" else measured >= limit
        assert bar["passed"] is holds


def test_the_page_shows_the_committed_results() -> None:
    assert run(ROOT / "benchmarks" / "tables.py", "--check").returncode == 0


def test_quick_runs_never_reach_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin memory -->\nold\n<!-- end memory -->\n")
    (tmp_path / "memory.json").write_text(json.dumps({"quick": True}))
    done = run(ROOT / "benchmarks" / "tables.py", "--results", str(tmp_path), "--page", str(page))
    assert done.returncode == 1
    assert "--quick" in done.stderr
    assert "old" in page.read_text()

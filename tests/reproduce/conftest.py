"""Makes the code of reproduce/ importable for the tests beside this file, as its own programs see it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.store import RunFolder

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / "reproduce", *sorted(path for path in (ROOT / "reproduce").iterdir() if path.is_dir()))
sys.path[:0] = [str(path) for path in (*PLACES, ROOT / "tests" / "analysis" / "conditions", ROOT / "benchmarks")]


@pytest.fixture(scope="session")
def fake_run() -> Callable[..., RunFolder]:
    """Make a run folder without a network (tests/report/fake_runs.py)."""
    spec = importlib.util.spec_from_file_location("fake_runs", ROOT / "tests" / "report" / "fake_runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: Callable[..., RunFolder] = module.fake_run
    return made

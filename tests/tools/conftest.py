"""The programs in tools/, imported as modules."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import one of them by name."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module


@pytest.fixture(scope="session")
def fake_run() -> Callable[..., Any]:
    """Make a run folder without a network (tests/report/fake_runs.py)."""
    spec = importlib.util.spec_from_file_location("fake_runs", ROOT / "tests" / "report" / "fake_runs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.fake_run  # type: ignore[no-any-return]

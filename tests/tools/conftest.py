"""The programs in tools/, imported as modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import one of them by name."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module

"""The programs in tools/, imported as modules."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

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


WORK = (
    "ringfence.cli.certify.certify_folder",
    "ringfence.cli.smooth_reduce_job.load",
    "ringfence.cli.holdout.HoldoutChoice.scores",
    "ringfence.training.side_by_side.run_training",
)
"""Where commands begin to work, all they were told having been checked."""


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a command was about to do; nothing is loaded or run."""
    seen: list[Any] = []

    def stop(first: Any, *_: Any, **__: Any) -> None:
        seen.append(first)
        raise typer.Exit

    for place in WORK:
        monkeypatch.setattr(place, stop)
    monkeypatch.setattr("ringfence.cli.train_progress.count_labels", lambda *_: None)
    return seen

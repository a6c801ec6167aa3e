"""Fake runs and a real browser."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.store import RunFolder

pytest.importorskip("altair", reason="needs the report extra")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _helpers() -> Any:
    spec = importlib.util.spec_from_file_location("fake_runs", Path(__file__).with_name("fake_runs.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fake_run() -> Callable[..., RunFolder]:
    """Make a run folder without a network."""
    return _helpers().fake_run  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless browser: RINGFENCE_CHROMIUM, or the chromium on the path."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the dev extra")
    path = os.environ.get("RINGFENCE_CHROMIUM") or shutil.which("chromium")
    if not path:
        pytest.skip("no browser: install chromium, or name one in RINGFENCE_CHROMIUM")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=FLAGS)  # with a fresh profile of its own
        yield running
        running.close()

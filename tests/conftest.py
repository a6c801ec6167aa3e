"""Shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that use it skip where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("no shared/ folder beside this checkout")
    return SHARED

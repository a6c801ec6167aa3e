"""Figures and self-contained pages; everything here needs the ``report`` extra."""

from __future__ import annotations

from typing import Any

from ringfence.errors import package


def need(module: str) -> Any:
    """Import a module of the ``report`` extra, or say how to install it."""
    return package(module, "report", 'Run pip install "ringfence[report]".')

"""Figures and self-contained pages; everything here needs the ``report`` extra."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from ringfence.errors import ArgumentError


def need(module: str) -> ModuleType:
    """Import a module of the ``report`` extra, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        rule = f"needs {module.partition('.')[0]}, which is not installed"
        raise ArgumentError("report", rule, str(error), 'Run pip install "ringfence[report]".') from error

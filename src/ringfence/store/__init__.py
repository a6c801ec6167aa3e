"""Run folders: written so that a crash loses little, read by everything that comes after; logs in and out."""

from __future__ import annotations

from ringfence.store.atomic import StoreWarning
from ringfence.store.config import SCHEMA_VERSION, RunConfig
from ringfence.store.exchange import export_cohen, import_cohen
from ringfence.store.logs import CohenLog, read_cohen
from ringfence.store.parts import InputInfo
from ringfence.store.run import RunFolder
from ringfence.store.writer import RecordWriter

__all__ = [
    "SCHEMA_VERSION",
    "CohenLog",
    "InputInfo",
    "RecordWriter",
    "RunConfig",
    "RunFolder",
    "StoreWarning",
    "export_cohen",
    "import_cohen",
    "read_cohen",
]

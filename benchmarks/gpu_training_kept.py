"""Rows of earlier runs of ``gpu_training.py``: from its result, or from the file of rows that a run leaves behind."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kept:
    """What an earlier run measured; origin: its date and machine."""

    rows: Sequence[dict[str, Any]]
    logs: Mapping[str, Sequence[float]]
    origin: Mapping[str, Any]


def kept(paths: Sequence[Path], machine: Path | None) -> Kept:
    """Rows of all files and where the last comes from; a row that a later file has is that one's alone."""
    rows: list[dict[str, Any]] = []
    logs: dict[str, Sequence[float]] = {}
    for one in (_of_file(path, machine) for path in paths):
        rows = merged(rows, one.rows)
        logs, origin = {**logs, **one.logs}, one.origin
    return Kept(rows, logs, origin)


def merged(before: Sequence[dict[str, Any]], later: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Earlier rows that were not measured again, with their profiles, then the later ones; of rates each day's."""

    def key(one: dict[str, Any]) -> tuple[str, str, str]:
        return one["case"], one["row"], one["measured"] if "tflops" in one else ""

    again = {key(one) for one in later}
    return [one for one in before if key(one) not in again] + list(later)


def _of_file(path: Path, machine: Path | None) -> Kept:
    """A file of rows alone has its own date, and, where it does not say it, the machine of another result."""
    content = json.loads(path.read_text())
    if "measurements" in content:
        origin = {"date": content["date"], "environment": content["environment"]}
        return Kept(content["measurements"]["rows"], content["measurements"]["logs"], origin)
    if machine is None and "environment" not in content:
        raise SystemExit(f"--machine: needed, since {path.name} does not say where it was measured.")
    written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    where = content.get("environment") or {**json.loads(machine.read_text())["environment"], "load_before": None}
    return Kept(content["rows"], {}, {"date": written.isoformat(timespec="seconds"), "environment": where})

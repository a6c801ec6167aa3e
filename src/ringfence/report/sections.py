"""What else may be handed to a report: training logs and variance studies, recognised by their content."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringfence.errors import StoreError
from ringfence.report.figures import Figure, Row
from ringfence.store.atomic import reading_errors

_ACCURACIES = ("noisy_accuracy", "held_out_accuracy")
_COMPARED = {
    "variance_ratio": "variance of the margins, relative to one member",
    "success": "success probability",
    "radius": "certified radius",
}


def training_log(path: Path) -> Path | None:
    """The log of a folder that ``ringfence train`` wrote, or the path itself if it is one; None otherwise."""
    log = path / "log.csv" if path.is_dir() else path
    if path.is_dir() and (path / "parts").is_dir():
        return None
    if not log.is_file() or log.suffix != ".csv":
        return None
    with reading_errors(log):
        head = log.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return log if {"epoch", "loss"} <= set(head.strip().split(",")) else None


def variance_study(path: Path) -> Mapping[str, Any] | None:
    """What ``ringfence variance --json`` printed, if this file holds it; None otherwise."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise StoreError(str(path), "must hold JSON", error, "Save the output of ringfence variance --json.") from error
    return found if isinstance(found, dict) and {"zeta_p", "sizes"} <= found.keys() else None


def training_figures(logs: Sequence[tuple[str, Path]]) -> list[Figure]:
    """Loss and accuracies against epoch, one line per training and measure."""
    losses: list[Row] = []
    accuracies: list[Row] = []
    for name, path in logs:
        with reading_errors(path), path.open(newline="", encoding="utf-8", errors="replace") as file:
            for line in csv.DictReader(file):
                losses += _point(name, line, "loss", "loss")
                for column in _ACCURACIES:
                    accuracies += _point(f"{name}, {column.replace('_', ' ')}", line, column, "accuracy")
    made = [
        ("Training: loss", "The objective's loss at the end of each epoch.", losses),
        ("Training: accuracy", "Accuracy under noise in training, and on held-out inputs where some were.", accuracies),
    ]
    return [Figure("lines", title, caption, rows, *_names(rows)) for title, caption, rows in made if rows]


def variance_figures(studies: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Figure]:
    """Predicted beside measured for every ensemble size: the fit of paper 000's variance model."""
    figures = []
    for key, words in _COMPARED.items():
        rows: list[Row] = []
        for name, study in studies:
            for kind in ("predicted", "measured"):
                titles = {"x_title": "members", "y_title": words}
                entries = [(size["k"], size[key][kind]) for size in study["sizes"] if key in size]
                rows += [{"run": f"{name}, {kind}", "x": k, "y": value, **titles} for k, value in entries]
        if rows:
            caption = f"Predicted by the variance model and measured by certification: {words}."
            figures.append(Figure("lines", f"Variance model: {key.replace('_', ' ')}", caption, rows, *_names(rows)))
    return figures


def _point(name: str, line: Mapping[str, str], column: str, title: str) -> list[Row]:
    """The row of one epoch; none where the log has no number there."""
    try:
        x, y = float(line["epoch"]), float(line[column])
    except (KeyError, TypeError, ValueError):
        return []
    return [{"run": name, "x": x, "y": y, "x_title": "epoch", "y_title": title}] if math.isfinite(y) else []


def _names(rows: Sequence[Row]) -> tuple[list[str], list[int]]:
    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    return names, list(range(len(names)))

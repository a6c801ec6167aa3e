"""The data of plain lines: training logs, and the variance model's predictions beside what was measured."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.errors import StoreError
from ringfence.report.figure import Figure, Row
from ringfence.report.lanes import Training
from ringfence.store.atomic import reading_errors

_ACCURACIES = ("noisy_accuracy", "held_out_accuracy")
_COMPARED = {
    "variance_ratio": ("ratio", "variance of the margins, relative to one member"),
    "success": ("success", "success probability"),
    "radius": ("radius", "certified radius"),
}
"""Entry of a study -> (its name in ``ringfence plot --kind variance-...``, the words on its axis)."""


def training_figures(trainings: Sequence[Training]) -> dict[str, Figure]:
    """Loss and accuracies against epoch, one line per training and measure, by their names in ``ringfence plot``."""
    losses: list[Row] = []
    accuracies: list[Row] = []
    for one in trainings:
        with reading_errors(one.log), one.log.open(newline="", encoding="utf-8", errors="replace") as file:
            for line in csv.DictReader(file):
                losses += _point(one.name, line, "loss", "loss")
                for column in _ACCURACIES:
                    accuracies += _point(f"{one.name}, {column.replace('_', ' ')}", line, column, "accuracy")
    found = {}
    if losses:
        caption = "The objective's loss at the end of each epoch."
        found["training-loss"] = Figure("lines", "Training: loss", caption, losses, *_names(losses))
    if accuracies:
        caption = "Accuracy under noise in training, and on held-out inputs where some were."
        found["training-accuracy"] = Figure("lines", "Training: accuracy", caption, accuracies, *_names(accuracies))
    return found


def variance_figures(studies: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Figure]:
    """Predicted beside measured for every ensemble size: the fit of Horvath et al.'s variance model."""
    found = {}
    for key, (title, words) in _COMPARED.items():
        rows: list[Row] = []
        for name, study in studies:
            for kind in ("predicted", "measured"):
                titles = {"x_title": "members", "y_title": words}
                entries = _entries(name, study, key, kind)
                rows += [{"run": f"{name}, {kind}", "x": k, "y": value, **titles} for k, value in entries]
        if rows:
            caption = f"Predicted by the variance model and measured by certification: {words}."
            found[f"variance-{title}"] = Figure("lines", f"Variance model: {title}", caption, rows, *_names(rows))
    return found


def _entries(name: str, study: Mapping[str, Any], key: str, kind: str) -> list[tuple[int, float]]:
    """(members, value) pairs of one measure; a study that was cut short or changed is refused by name."""
    try:
        pairs = [(int(size["k"]), float(size[key][kind])) for size in study["sizes"] if key in size]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        remedy = "Save the output of ringfence variance --json once more."
        raise StoreError(name, f"must hold {kind} and k of every size", repr(error), remedy) from error
    return [(k, value) for k, value in pairs if math.isfinite(value)]


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

"""Answers: one row per input and lane, for people: file name, label, prediction, radius, p_a, draws."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, TextIO

from ringfence.printable import cell, one_line
from ringfence.store import RunFolder
from ringfence.store.atomic import write_atomically

COLUMNS = ("name", "id", "lane", "label", "prediction", "correct", "radius", "p_a", "draws", "sound")
"""prediction is -1 for an abstention; label and correct are empty where no label is known."""


def answers(run: RunFolder) -> list[dict[str, Any]]:
    """The rows, in the order of ids and lanes."""
    names = {one.id: one.name for one in run.inputs()}
    wanted = ["input_id", "lane", "label", "prediction", "radius", "p_a", "draws", "sound"]
    rows = []
    for row in run.records(wanted).to_pylist():
        one, label = row.pop("input_id"), row["label"]
        correct = None if label is None else row["prediction"] == label
        found = {"name": names.get(one, str(one)), "id": one, "correct": correct, **row}
        rows.append({name: found[name] for name in COLUMNS})
    return rows


def export_csv(run: RunFolder, target: str | Path | TextIO) -> None:
    """Write the rows as a table that a spreadsheet opens, and in which no name can be a formula.

    Radii and bounds have all their digits: what is read back is what was proved, not more.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in answers(run):
        writer.writerow({name: _written(value) for name, value in row.items()})
    if isinstance(target, str | Path):
        write_atomically(Path(target), text.getvalue().encode())
    else:
        target.write(text.getvalue())


def _written(value: Any) -> Any:
    """Text on one line and never a formula; yes and no as 1 and 0; numbers so that they read back as they are."""
    if isinstance(value, bool):
        return int(value)
    return cell(one_line(value)) if isinstance(value, str) else value

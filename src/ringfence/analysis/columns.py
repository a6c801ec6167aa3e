"""Records as arrays, from wherever they come: a run folder, a Cohen-style log, or the records themselves; and those of
a run as rows of a table that anybody opens."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TextIO, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ringfence.errors import cell, one_line
from ringfence.record import Record
from ringfence.store import CohenLog, RunFolder
from ringfence.store.atomic import write_output, writing_errors
from ringfence.store.schema import RECORD_SCHEMA
from ringfence.types import ABSTAIN, BINS, SCORE_EDGES, BoolArray, FloatArray, IntArray

Source = Sequence[Record] | CohenLog | RunFolder


@final
@dataclass(frozen=True)
class Columns:
    """A run as arrays (rows,); label -1 and target NaN stand for none."""

    input_id: IntArray
    lane: NDArray[np.str_]
    label: IntArray
    prediction: IntArray
    radius: FloatArray
    p_a: FloatArray
    p_b: FloatArray
    target: FloatArray
    draws: IntArray
    forwards: IntArray
    seconds: FloatArray
    sound: BoolArray

    def at(self, rows: BoolArray | IntArray) -> Columns:
        """Some of the rows."""
        return Columns(**{name: getattr(self, name)[rows] for name in _NAMES})

    @property
    def labelled(self) -> BoolArray:
        """Which rows have a label: only those count for accuracies."""
        return np.asarray(self.label >= 0)

    @property
    def correct(self) -> BoolArray:
        """Which rows answer, and with the label."""
        return np.asarray((self.prediction == self.label) & (self.prediction != ABSTAIN))

    @property
    def tried_known_radii(self) -> bool:
        """Whether the run tried to prove radii known beforehand."""
        return not bool(np.isnan(self.target).all())


_NAMES = tuple(one.name for one in fields(Columns))


def columns_of(source: Source) -> Columns:
    """The records of a source as arrays; of a run only the needed columns are read, its counts stay on the disk."""
    if isinstance(source, RunFolder):
        table = source.records(_NAMES)
    else:
        records = source.records if isinstance(source, CohenLog) else source
        rows = [{name: getattr(record, name) for name in _NAMES} for record in records]
        table = pa.Table.from_pylist(rows, pa.schema([RECORD_SCHEMA.field(name) for name in _NAMES]))
    arrays = {name: table[name] for name in _NAMES}
    arrays["label"] = arrays["label"].fill_null(-1)
    arrays["target"] = arrays["target"].fill_null(float("nan"))
    return Columns(
        lane=np.array(arrays.pop("lane").to_pylist(), dtype=np.str_),
        **{name: array.to_numpy() for name, array in arrays.items()},
    )


_MIDDLES: FloatArray = (SCORE_EDGES[1:] + SCORE_EDGES[:-1]) / 2


def score_sums(cells: IntArray) -> FloatArray:
    """Sums of softmax scores per class (K,), from the middles of the bins of its histogram; cells: of ``scores``."""
    sums: FloatArray = cells[:-1].reshape(-1, BINS) @ _MIDDLES
    return sums


COLUMNS = ("name", "id", "lane", "label", "prediction", "correct", "radius", "p_a", "draws", "sound", "norm")
"""prediction is -1 for an abstention; label and correct are empty where no label is known; norm is the radius's."""


def answers(run: RunFolder) -> list[dict[str, Any]]:
    """The rows, in the order of ids and lanes."""
    names = {one.id: one.name for one in run.inputs()}
    wanted = ["input_id", *(name for name in COLUMNS if name not in ("name", "id", "correct"))]
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
    text = csv_text(COLUMNS, answers(run))
    if isinstance(target, str | Path):
        with writing_errors(Path(target)):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        write_output(Path(target), text.encode())
    else:
        target.write(text)


def _cell_text(value: Any) -> Any:
    """Text on one line and never a formula; yes and no as 1 and 0; numbers so that they read back as they are."""
    if isinstance(value, bool):
        return int(value)
    return cell(one_line(value)) if isinstance(value, str) else value


def csv_text(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows below a line with the names of their columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell_text(value) for name, value in row.items()} for row in rows)
    return text.getvalue()

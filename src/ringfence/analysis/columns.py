"""Records as arrays, from wherever they come: a run folder, a Cohen-style log, or the records themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ringfence.record import Record
from ringfence.store import CohenLog, RunFolder
from ringfence.store.schema import RECORD_SCHEMA
from ringfence.types import BINS, SCORE_EDGES, BoolArray, FloatArray, IntArray

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

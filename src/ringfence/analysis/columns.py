"""Records as arrays, from wherever they come: a run folder, a Cohen-style log, or the records themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import final

import numpy as np
from numpy.typing import NDArray

from ringfence.record import Record
from ringfence.store import CohenLog, RunFolder
from ringfence.types import BoolArray, FloatArray, IntArray

Source = Sequence[Record] | CohenLog | RunFolder


@final
@dataclass(frozen=True)
class Columns:
    """A run as arrays (rows,); label -1 and target NaN stand for none."""

    lane: NDArray[np.str_]
    label: IntArray
    prediction: IntArray
    radius: FloatArray
    target: FloatArray
    draws: IntArray
    forwards: IntArray
    seconds: FloatArray
    sound: BoolArray

    def at(self, rows: BoolArray | IntArray) -> Columns:
        """Some of the rows."""
        return Columns(**{name: getattr(self, name)[rows] for name in _NAMES})

    @property
    def tried_known_radii(self) -> bool:
        """Whether the run tried to prove radii known beforehand."""
        return not bool(np.isnan(self.target).all())


_NAMES = tuple(one.name for one in fields(Columns))


def columns_of(source: Source) -> Columns:
    """The records of a source as arrays."""
    if isinstance(source, RunFolder):
        return _table_columns(source)
    if isinstance(source, CohenLog):
        return _log_columns(source)
    values = {name: [getattr(record, name) for record in source] for name in _NAMES}
    values["label"] = [-1 if label is None else label for label in values["label"]]
    values["target"] = [np.nan if target is None else target for target in values["target"]]
    return Columns(
        lane=np.array(values["lane"], dtype=np.str_),
        radius=np.array(values["radius"], dtype=np.float64),
        target=np.array(values["target"], dtype=np.float64),
        seconds=np.array(values["seconds"], dtype=np.float64),
        sound=np.array(values["sound"], dtype=np.bool_),
        **{name: np.array(values[name], dtype=np.int64) for name in ("label", "prediction", "draws", "forwards")},
    )


def _table_columns(run: RunFolder) -> Columns:
    """Only the needed columns are read: the counts of a large run stay on the disk."""
    table = run.records(_NAMES)
    arrays = {name: table[name] for name in _NAMES}
    arrays["label"] = arrays["label"].fill_null(-1)
    arrays["target"] = arrays["target"].fill_null(float("nan"))
    return Columns(
        lane=np.array(arrays.pop("lane").to_pylist(), dtype=np.str_),
        **{name: array.to_numpy() for name, array in arrays.items()},
    )


def _log_columns(log: CohenLog) -> Columns:
    """A log names no draws, and its radii are rounded to nearest: it is not called sound."""
    none = np.zeros(len(log), dtype=np.int64)
    return Columns(
        lane=np.full(len(log), "", dtype=np.str_),
        label=log.label,
        prediction=log.predict,
        radius=log.radius,
        target=np.full(len(log), np.nan),
        draws=none,
        forwards=none,
        seconds=log.seconds,
        sound=np.zeros(len(log), dtype=np.bool_),
    )

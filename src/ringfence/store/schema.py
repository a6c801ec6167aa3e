"""The table of a run: one Arrow row per Record, exact in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringfence.record import Record, StageTally
from ringfence.types import IntArray

CELLS = pa.map_(pa.string(), pa.list_(pa.int64()))
STAGE = pa.struct([("stage", pa.int32()), ("start", pa.int64()), ("draws", pa.int64()), ("cells", CELLS)])
NUMBERS = pa.map_(pa.string(), pa.float64())
FACTS = pa.map_(pa.string(), pa.int64())

RECORD_SCHEMA = pa.schema(
    [
        pa.field("input_id", pa.int64(), nullable=False),
        pa.field("lane", pa.string(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("prediction", pa.int64(), nullable=False),
        pa.field("radius", pa.float64(), nullable=False),
        pa.field("p_a", pa.float64(), nullable=False),
        pa.field("p_b", pa.float64(), nullable=False),
        pa.field("alpha", pa.float64(), nullable=False),
        pa.field("procedure", pa.string(), nullable=False),
        pa.field("sound", pa.bool_(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("draws", pa.int64(), nullable=False),
        pa.field("forwards", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("target", pa.float64()),
        pa.field("lift_norm", pa.float64(), nullable=False),
        pa.field("radii", NUMBERS, nullable=False),
        pa.field("spent", NUMBERS, nullable=False),
        pa.field("stages", pa.list_(STAGE), nullable=False),
        pa.field("config_hash", pa.string(), nullable=False),
        pa.field("facts", FACTS, nullable=False),
        pa.field("norm", pa.string(), nullable=False),
    ]
)


LATER: dict[str, Any] = {"facts": [], "norm": "l2"}
"""Columns that older runs do not have, and the value that they get there."""


def with_later_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with a default for every column of the schema that is newer than the table."""
    for name, value in LATER.items():
        if name in schema.names and name not in table.column_names:
            column = schema.field(name)
            table = table.append_column(column, pa.array([value] * len(table), type=column.type))
    return table.select(schema.names).cast(schema)


def refuse_nulls(table: pa.Table) -> None:
    """A ValueError where something stands empty that never is; Arrow itself does not mind."""
    for column in table.schema:
        if not column.nullable and table[column.name].null_count:
            raise ValueError(f"{column.name} is empty in some rows")
        for chunk in table[column.name].chunks:
            if column.name == "stages" and _holes(chunk):
                raise ValueError("stages are empty in some rows")
            if column.type in (NUMBERS, FACTS) and (chunk.keys.null_count or chunk.items.null_count):
                raise ValueError(f"{column.name} is empty in some rows")


def _holes(stages: pa.ListArray) -> bool:
    structs = stages.values
    cells = structs.field("cells")
    inner = [structs, cells, cells.keys, cells.items, cells.items.values]
    return any(array.null_count for array in (*inner, *(structs.field(name) for name in ("stage", "start", "draws"))))


RANGES: dict[str, tuple[float, float]] = {
    "prediction": (-1, 2**31),
    "label": (0, 2**31),
    "radius": (0, 1e300),
    "p_a": (0, 1),
    "p_b": (0, 1),
    "alpha": (0, 1),
    "draws": (0, 2**53),
    "forwards": (0, 2**53),
    "seconds": (0, 1e15),
    "target": (0, 1e300),
    "lift_norm": (0, 1e300),
}
"""What a number can be, both ends included; NaN is nothing of it."""


def refuse_nonsense(table: pa.Table, classes: int, lanes: Sequence[str]) -> None:
    """A ValueError where a row holds what no procedure ever wrote, so that nobody computes with it."""
    strangers = set(pc.unique(table["lane"]).to_pylist()) - set(lanes)
    if lanes and strangers:
        raise ValueError(f"the settings know no lane {min(strangers)!r:.40}")
    for name in table.column_names:
        if name in RANGES:
            low, high = RANGES[name]
            values = table[name].drop_null().to_numpy()
            if not np.all((values >= low) & (values <= high)):
                raise ValueError(f"{name} is outside {low:g} to {high:g} in some rows")
    for chunk in table["stages"].chunks if "stages" in table.column_names else ():
        structs = chunk.values
        cells = structs.field("cells")
        if not np.all(structs.field("draws").to_numpy() > 0) or not np.all(np.diff(cells.offsets.to_numpy()) > 0):
            raise ValueError("a request without draws or counts")
        votes = np.array([name == "votes" for name in cells.keys.to_pylist()], np.bool_)
        if np.any(np.diff(cells.items.offsets.to_numpy())[votes] != classes + 1):
            raise ValueError(f"votes are not those of {classes} classes")


def to_table(records: Sequence[Record]) -> pa.Table:
    """Records as a table of RECORD_SCHEMA, in their order."""
    columns: list[Any] = []
    for column in RECORD_SCHEMA:
        if column.name == "stages":
            columns.append(_stages_column([record.stages for record in records]))
        else:
            values = [getattr(record, column.name) for record in records]
            if column.type in (NUMBERS, FACTS):
                values = [list(mapping.items()) for mapping in values]
            columns.append(pa.array(values, type=column.type, from_pandas=False))
    return pa.table(columns, schema=RECORD_SCHEMA)


def from_table(table: pa.Table) -> list[Record]:
    """The records of a table of RECORD_SCHEMA, in its order."""
    columns: dict[str, list[Any]] = {}
    for column in RECORD_SCHEMA:
        if column.name == "stages":
            columns[column.name] = [row for chunk in table["stages"].chunks for row in _read_stages(chunk)]
        elif column.type in (NUMBERS, FACTS):
            columns[column.name] = [dict(entry) for entry in table[column.name].to_pylist()]
        else:
            columns[column.name] = table[column.name].to_pylist()
    return [Record(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _offsets(lengths: Sequence[int]) -> pa.Array:
    """Where each list begins, and where the last one ends: int32 (lists + 1,)."""
    return pa.array(np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))]).astype(np.int32))


def _stages_column(rows: Sequence[tuple[StageTally, ...]]) -> pa.Array:
    """list<STAGE>, built from flat arrays because Arrow's conversion of nested Python objects is slow."""
    stages = [stage for row in rows for stage in row]
    counts = [np.asarray(cells, dtype=np.int64).ravel() for stage in stages for cells in stage.cells.values()]
    flat = np.concatenate(counts) if counts else np.empty(0, dtype=np.int64)
    names = pa.array([name for stage in stages for name in stage.cells], type=pa.string())
    arrays = pa.ListArray.from_arrays(_offsets([len(cells) for cells in counts]), pa.array(flat))
    cells = pa.MapArray.from_arrays(_offsets([len(stage.cells) for stage in stages]), names, arrays)
    structs = pa.StructArray.from_arrays(
        [
            pa.array([stage.stage for stage in stages], type=pa.int32()),
            pa.array([stage.start for stage in stages], type=pa.int64()),
            pa.array([stage.draws for stage in stages], type=pa.int64()),
            cells,
        ],
        fields=list(STAGE),
    )
    return pa.ListArray.from_arrays(_offsets([len(row) for row in rows]), structs)


def _read_stages(chunk: pa.ListArray) -> list[tuple[StageTally, ...]]:
    """One tuple of stages per row; their counts are read-only views into the column's memory."""
    structs = chunk.values
    cells = structs.field("cells")
    flat: IntArray = cells.items.values.to_numpy()
    cell_starts = cells.items.offsets.to_numpy().tolist()
    map_starts = cells.offsets.to_numpy().tolist()
    names = cells.keys.to_pylist()
    numbers = [structs.field(name).to_numpy().tolist() for name in ("stage", "start", "draws")]
    stages = [
        StageTally(
            stage, start, draws, {names[k]: flat[cell_starts[k] : cell_starts[k + 1]] for k in range(first, last)}
        )
        for stage, start, draws, first, last in zip(*numbers, map_starts[:-1], map_starts[1:], strict=True)
    ]
    rows = chunk.offsets.to_numpy().tolist()
    return [tuple(stages[first:last]) for first, last in pairwise(rows)]


def in_other_norm(table: pa.Table, norm: str, factor: float) -> pa.Table:
    """The same rows with every radius multiplied by the factor, said to be of this norm."""
    changed = {name: pc.multiply(table[name], factor) for name in ("radius", "target") if name in table.column_names}
    if "radii" in table.column_names:
        whole = table["radii"].combine_chunks()
        several = pa.MapArray.from_arrays(whole.offsets, whole.keys, pc.multiply(whole.items, factor))
        changed["radii"] = several
    if "norm" in table.column_names:
        changed["norm"] = pa.repeat(norm, len(table))
    for name, column in changed.items():
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    return table

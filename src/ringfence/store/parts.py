"""Parquet files of a run: numbered parts, written once and never changed, and what a reader sees of each input.

Lanes that share draws often share most of their counts: a cell that is equal to the first one of the same input,
request and name in the part is written empty, and filled in again when it is read; nobody else sees the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ringfence.errors import StoreError
from ringfence.store.schema import CELLS, RECORD_SCHEMA, STAGE, refuse_nulls, with_later_columns

_DICTIONARY = ("lane", "procedure", "config_hash")
"""Columns with a dictionary; numbers are stored as they are, so that every bit of a radius survives."""
_LEVEL = 9
"""Of compression, above the default: parts are written once and kept for good."""

DAMAGE = (OSError, KeyError, ValueError, TypeError, OverflowError, MemoryError, pa.ArrowException)
"""What reading a file that holds anything at all may raise."""

ENVIRONMENT_KEY = b"ringfence.environment"
SEGMENT_KEY = b"ringfence.forward_plan"


def part_bytes(table: pa.Table, environment: int, segment: int) -> bytes:
    """A part as a file; it names the entries of environment.json and forward.json it was made under."""
    named = {ENVIRONMENT_KEY: str(environment).encode(), SEGMENT_KEY: str(segment).encode()}
    return parquet_bytes(share(table).replace_schema_metadata(named))


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a Parquet file with page checksums, so that a flipped bit is noticed and not believed."""
    sink = pa.BufferOutputStream()
    dictionary = [name for name in _DICTIONARY if name in table.column_names]
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=dictionary,
        write_page_checksum=True,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_part(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """One part, checksums verified; raises one of DAMAGE where it is damaged."""
    if not path.is_file():  # opening a pipe would wait for its writer
        raise OSError("not a file")
    with path.open("rb") as content:  # Arrow's names are UTF-8, those of folders any bytes
        table = _read(content, columns)
    expected = RECORD_SCHEMA if columns is None else pa.schema([RECORD_SCHEMA.field(name) for name in columns])
    table = with_later_columns(table, expected)
    if "stages" in table.column_names and "input_id" in table.column_names:
        table = fill(table)
    refuse_nulls(table)
    return table


def _read(source: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """A Parquet file, checksums verified, read in this thread alone: a thread of Arrow's that lets go of Python's bytes
    while the program ends aborts it, exit code 134."""
    with pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False) as file:
        return file.read(columns=columns, use_threads=False)


def conditions(path: Path) -> tuple[int, int]:
    """The numbers of the environment and the forward plan that a part was made under, -1 where it names none."""
    with path.open("rb") as content:
        metadata = pq.read_schema(content).metadata or {}
    return int(metadata.get(ENVIRONMENT_KEY, b"-1")), int(metadata.get(SEGMENT_KEY, b"-1"))


def sorted_rows(table: pa.Table) -> pa.Table:
    """Rows by (input_id, lane); of rows with the same pair only the first written stays."""
    ids = table["input_id"].to_numpy()
    lanes = _ranks(table["lane"])
    order = np.lexsort((lanes, ids))  # stable: equal pairs keep the order in which they were written
    ids, lanes = ids[order], lanes[order]
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (ids[1:] != ids[:-1]) | (lanes[1:] != lanes[:-1])
    if fresh.all() and np.array_equal(order, np.arange(len(order))):
        return table
    return table.take(pa.array(order[fresh]))


def _ranks(column: pa.ChunkedArray) -> Any:
    """Each string's place among the sorted distinct ones (rows,)."""
    distinct = pa.array(sorted(pc.unique(column).to_pylist()), type=pa.string())
    return pc.index_in(column, value_set=distinct).to_numpy()


_Request = tuple[int, int, int, int, str]


def share(table: pa.Table) -> pa.Table:
    """The table with repeated cells left empty."""
    if not len(table):
        return table
    table = table.combine_chunks()
    items = _items(table)
    flat, starts = items.values.to_numpy(), items.offsets.to_numpy()
    first: dict[_Request, int] = {}
    repeated = np.zeros(len(items), np.bool_)
    for at, request in enumerate(_requests(table)):
        original = first.setdefault(request, at)
        mine, its = (flat[starts[one] : starts[one + 1]] for one in (at, original))
        repeated[at] = original != at and np.array_equal(mine, its)
    if not repeated.any():
        return table
    lengths = np.where(repeated, 0, np.diff(starts))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    kept = flat[starts[0] : starts[-1]][np.repeat(~repeated, np.diff(starts))]
    return _with_items(table, pa.ListArray.from_arrays(pa.array(offsets), pa.array(kept), mask=pa.array(repeated)))


def fill(table: pa.Table) -> pa.Table:
    """The table with every cell; a ValueError where an empty one repeats nothing."""
    if not len(table):
        return table
    table = table.combine_chunks()
    items = _items(table)
    if not items.null_count:
        return table
    empty = items.is_null().to_numpy(zero_copy_only=False)
    first: dict[_Request, int] = {}
    source = np.arange(len(items))
    for at, request in enumerate(_requests(table)):
        source[at] = first.setdefault(request, at) if empty[at] else at
        first.setdefault(request, at)
    if empty[source].any():
        raise ValueError("counts are empty in some rows")
    return _with_items(table, items.take(pa.array(source)))


def _items(table: pa.Table) -> pa.ListArray:
    return table["stages"].chunk(0).values.field("cells").items


def _requests(table: pa.Table) -> Iterator[_Request]:
    """(input id, stage, start, draws, name) of every cell, in their order."""
    stages = table["stages"].chunk(0)
    structs = stages.values
    cells = structs.field("cells")
    ids = _repeated(table["input_id"].to_pylist(), stages.offsets)
    requests = zip(ids, *(structs.field(name).to_pylist() for name in ("stage", "start", "draws")), strict=True)
    per_cell = _repeated(list(requests), cells.offsets)
    yield from ((*request, name) for request, name in zip(per_cell, cells.keys.to_pylist(), strict=True))


def _repeated(values: Sequence[Any], offsets: pa.Array) -> list[Any]:
    """Each value as often as its list is long."""
    return [
        value for value, count in zip(values, np.diff(offsets.to_numpy()).tolist(), strict=True) for _ in range(count)
    ]


def _with_items(table: pa.Table, items: pa.Array) -> pa.Table:
    stages = table["stages"].chunk(0)
    structs = stages.values
    cells = structs.field("cells")
    mapped = pa.MapArray.from_arrays(cells.offsets, cells.keys, items).cast(CELLS)
    numbers = [structs.field(name) for name in ("stage", "start", "draws")]
    column = pa.ListArray.from_arrays(
        stages.offsets, pa.StructArray.from_arrays([*numbers, mapped], fields=list(STAGE))
    )
    place = table.schema.get_field_index("stages")
    return table.set_column(place, table.schema.field(place), column)


INPUT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("name", pa.string(), nullable=False),
        pa.field("thumbnail", pa.binary()),
        pa.field("shape", pa.list_(pa.int32())),
    ]
)


@dataclass(frozen=True)
class InputInfo:
    """One input: its id, its label, its name (a file or ""), and a small picture, uint8 (height, width, channels)."""

    id: int
    label: int | None
    name: str = ""
    thumbnail: NDArray[np.uint8] | None = None


def inputs_bytes(inputs: Sequence[InputInfo]) -> bytes:
    """The table of inputs as a file."""
    pictures = [None if one.thumbnail is None else np.asarray(one.thumbnail, dtype=np.uint8) for one in inputs]
    columns = [
        [one.id for one in inputs],
        [one.label for one in inputs],
        [one.name.encode("utf-8", "backslashreplace").decode() for one in inputs],  # file names may be any bytes
        [None if picture is None else picture.tobytes() for picture in pictures],
        [None if picture is None else list(picture.shape) for picture in pictures],
    ]
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, INPUT_SCHEMA, strict=True)]
    return parquet_bytes(pa.table(arrays, schema=INPUT_SCHEMA))


def parse_inputs(path: Path, content: bytes) -> list[InputInfo]:
    """The inputs in the order they were written; path names the file in an error."""
    try:
        table = _read(pa.BufferReader(content)).select(INPUT_SCHEMA.names).cast(INPUT_SCHEMA)
        refuse_nulls(table)
        rows = zip(*(table[name].to_pylist() for name in INPUT_SCHEMA.names), strict=True)
        return [InputInfo(one, label, name, _picture(raw, shape)) for one, label, name, raw, shape in rows]
    except DAMAGE as error:
        remedy = "Delete this file: the records do not need it, and the same command writes it anew."
        raise StoreError(path, "must be a readable Parquet file", error, remedy) from error


def _picture(raw: bytes | None, shape: list[int] | None) -> NDArray[np.uint8] | None:
    return None if raw is None or shape is None else np.frombuffer(raw, dtype=np.uint8).reshape(shape)

"""Append-only Parquet parts: numbered files that are written once, whole, and never changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringfence.store.schema import RECORD_SCHEMA, refuse_nulls, with_later_columns
from ringfence.store.shared import fill, share

_PART = re.compile(r"part-(\d{6,})\.parquet")
_DICTIONARY = ("lane", "procedure", "config_hash")
"""Columns with a dictionary; numbers are stored as they are, so that every bit of a radius survives."""
_LEVEL = 9
"""Of compression, above the default: parts are written once and kept for good."""

DAMAGE = (OSError, KeyError, ValueError, TypeError, OverflowError, MemoryError, pa.ArrowException)
"""What reading a file that holds anything at all may raise."""

ENVIRONMENT_KEY = b"ringfence.environment"
SEGMENT_KEY = b"ringfence.forward_plan"


def part_paths(folder: Path) -> list[Path]:
    """The parts in the order they were written."""
    numbered = [(int(match[1]), path) for path in folder.glob("part-*") if (match := _PART.fullmatch(path.name))]
    return [path for _, path in sorted(numbered)]


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
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read(columns=columns)
    expected = RECORD_SCHEMA if columns is None else pa.schema([RECORD_SCHEMA.field(name) for name in columns])
    table = with_later_columns(table, expected)
    if "stages" in table.column_names and "input_id" in table.column_names:
        table = fill(table)
    refuse_nulls(table)
    return table


def conditions(path: Path) -> tuple[int, int]:
    """The numbers of the environment and the forward plan that a part was made under, -1 where it names none."""
    metadata = pq.read_schema(path).metadata or {}
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

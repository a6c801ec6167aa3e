"""Append-only Parquet parts: numbered files that are written once, whole, and never changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringfence.store.atomic import write_atomically
from ringfence.store.schema import RECORD_SCHEMA, with_later_columns

_PART = re.compile(r"part-(\d{6,})\.parquet")
_DICTIONARY = ("lane", "procedure", "config_hash")
"""Columns with a dictionary; numbers are stored as they are, so that every bit of a radius survives."""
_LEVEL = 9
"""Of compression, above the default: parts are written once and kept for good."""

ENVIRONMENT_KEY = b"ringfence.environment"
SEGMENT_KEY = b"ringfence.forward_plan"


def part_paths(folder: Path) -> list[Path]:
    """The parts in the order they were written."""
    numbered = [(int(match[1]), path) for path in folder.glob("part-*") if (match := _PART.fullmatch(path.name))]
    return [path for _, path in sorted(numbered)]


def write_part(folder: Path, table: pa.Table, environment: int, segment: int) -> Path:
    """Write the next part; it names the entries of environment.json and forward.json it was made under."""
    existing = part_paths(folder)
    number = int(existing[-1].stem.removeprefix("part-")) + 1 if existing else 0
    path = folder / f"part-{number:06d}.parquet"
    named = {ENVIRONMENT_KEY: str(environment).encode(), SEGMENT_KEY: str(segment).encode()}
    write_atomically(path, parquet_bytes(table.replace_schema_metadata(named)))
    return path


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
    """One part, checksums verified; raises OSError or pa.ArrowException where it is damaged."""
    if not path.is_file():  # opening a pipe would wait for its writer
        raise OSError("not a file")
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read(columns=columns)
    expected = RECORD_SCHEMA if columns is None else pa.schema([RECORD_SCHEMA.field(name) for name in columns])
    return with_later_columns(table, expected)


def merge_parts(folder: Path) -> None:
    """Join the parts of a finished run that were made under the same conditions, without losing any to a crash.

    The joined part is complete on disk before the small ones go; in between, rows that stand twice are equal.
    """
    alike: dict[tuple[bytes | None, bytes | None], list[Path]] = {}
    for path in part_paths(folder):
        metadata = pq.read_schema(path).metadata or {}
        alike.setdefault((metadata.get(ENVIRONMENT_KEY), metadata.get(SEGMENT_KEY)), []).append(path)
    for (environment, segment), paths in alike.items():
        if len(paths) > 1:
            table = sorted_rows(pa.concat_tables([read_part(path) for path in paths]))
            write_part(folder, table, int(environment or b"-1"), int(segment or b"-1"))
            for path in paths:
                path.unlink()


def read_parts(
    folder: Path, columns: Sequence[str] | None, on_damage: Callable[[Path, Exception], None]
) -> Iterator[pa.Table]:
    """Every readable part; on_damage hears about the others."""
    for path in part_paths(folder):
        try:
            table = read_part(path, columns)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            on_damage(path, error)
        else:
            yield table


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

"""inputs.parquet: what the reader of a report sees of each input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ringfence.errors import StoreError
from ringfence.store.parts import DAMAGE, parquet_bytes
from ringfence.store.schema import refuse_nulls

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
        with pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True) as file:
            table = file.read().select(INPUT_SCHEMA.names).cast(INPUT_SCHEMA)
        refuse_nulls(table)
        rows = zip(*(table[name].to_pylist() for name in INPUT_SCHEMA.names), strict=True)
        return [InputInfo(one, label, name, _picture(raw, shape)) for one, label, name, raw, shape in rows]
    except DAMAGE as error:
        remedy = "Delete this file: the records do not need it, and the same command writes it anew."
        raise StoreError(str(path), "must be a readable Parquet file", error, remedy) from error


def _picture(raw: bytes | None, shape: list[int] | None) -> NDArray[np.uint8] | None:
    return None if raw is None or shape is None else np.frombuffer(raw, dtype=np.uint8).reshape(shape)

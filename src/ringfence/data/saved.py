"""Data sets that Hugging Face's ``datasets`` saved (``save_to_disk``), read without it: Arrow files and two of JSON.

Nothing is downloaded or run, and only pictures inside the files are decoded: a row that names a file is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from ringfence.data.adapters import LABELS, PICTURES, pixels
from ringfence.data.dataset import EIGHT_BIT, Dataset, refuse_channels_last, split_among
from ringfence.data.images import Framing, misfit, mode_of, open_image, pixels_of
from ringfence.digests import hashed, write_digest
from ringfence.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

ONE, SEVERAL = "state.json", "dataset_dict.json"


def is_saved(path: Path) -> bool:
    """Whether ``save_to_disk`` wrote this folder."""
    return (path / ONE).is_file() or (path / SEVERAL).is_file()


def saved_dataset(path: Path, split: str, framing: Framing | None = None, mode: str | None = None) -> Dataset:
    """Its inputs and labels, by the usual names of columns; ids are row numbers. mode: L or RGB, of pictures."""
    folder = _split(path, split)
    state, info = (_json(folder / name) for name in (ONE, "dataset_info.json"))
    table = _table(folder, state)
    features = info.get("features") or {}
    inputs, labels = _column(folder, table, PICTURES), _label_column(table, features)
    column, encoded = table[inputs], pa.types.is_struct(table.schema.field(inputs).type)
    in_bytes = _of_numbers(table.schema.field(inputs).type) == pa.uint8()
    numbers: list[int | None] = [None] * len(table) if labels is None else _labels(folder, table[labels].to_pylist())

    identified: list[str] = []

    def read(position: int) -> Tensor:
        where = f"{folder}, row {position}"
        value = column[position].as_py()  # a copy: the table stays on disk, and what is hashed is what is seen
        if identified and identified[position] != hashed([_content(value)]):
            rule, remedy = "must stay what it was when the digest of the data was taken", "Certify the new data anew."
            raise DataError(where, rule, "other bytes", remedy)
        return (
            pixels_of(_picture(where, value), where, wanted or "RGB", framing)
            if encoded
            else pixels(where, np.array(value, np.uint8) if in_bytes else value).float()
        )

    wanted = mode
    if encoded and mode is None and len(table):
        wanted = mode_of(_picture(f"{folder}, row 0", column[0].as_py()))
    shape = tuple(read(0).shape) if len(table) else ()
    refuse_channels_last(str(path), shape)
    known = features.get(labels, {}).get("names") if labels else None
    return Dataset(
        name=str(path),
        ids=list(range(len(table))),
        labels=numbers,
        positions=list(range(len(table))),
        read=read,
        name_of=lambda position: f"{path.name}/{position}",
        shape=shape,
        identify=cache(partial(_digest, column, numbers, f"{framing}|{wanted}", identified)),
        num_classes=len(known) if known else None,
        class_names=known or None,
        lattice=EIGHT_BIT if encoded else None,
        misfits=lambda side: encoded and framing is None and misfit(map(BytesIO, _contents(column)), side),
    )


def _split(path: Path, split: str) -> Path:
    """The folder of the split; of a single data set it is whatever the user says it is."""
    if not (path / SEVERAL).is_file():
        return path
    there = [str(one) for one in _json(path / SEVERAL).get("splits") or ()]
    found = split_among(split, there)
    if found is None or not (path / found / ONE).is_file():
        rule, remedy = f"must have the split {split}", "Choose a `split` that is there."
        raise DataError(path, rule, f"the splits {', '.join(there) or 'none'}", remedy)
    return path / found


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        remedy = "Save the data set again with save_to_disk."
        raise DataError(file, "must be readable JSON", error, remedy) from error
    if not isinstance(content, dict):
        raise DataError(file, "must hold a JSON object", type(content).__name__, "Save the data set again.")
    return content


def _table(folder: Path, state: dict[str, Any]) -> pa.Table:
    """All Arrow files, in their order, as one table that stays on disk."""
    if state.get("_indices_data_files"):
        rule, remedy = "must hold its rows in their order", "Call flatten_indices() before save_to_disk."
        raise DataError(folder, rule, "a selection of other rows", remedy)
    try:
        names = [str(one["filename"]) for one in state["_data_files"]]
        if any(Path(name).name != name for name in names):
            raise ValueError(f"it names files elsewhere: {names}")
        parts = []
        for name in names:
            with pa.memory_map(str(folder / name)) as file:
                parts.append(pa.ipc.open_stream(file).read_all())
        return pa.concat_tables(parts)
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        remedy = "Save the data set again with save_to_disk."
        raise DataError(folder, "must be a saved data set", error, remedy) from error


def _column(folder: Path, table: pa.Table, names: tuple[str, ...]) -> str:
    found = next((name for name in names if name in table.column_names), None)
    if found is None:
        rule = f"must have a column of inputs, called {', '.join(names[:4])}, ..."
        raise DataError(folder, rule, f"the columns {', '.join(table.column_names)}", "Rename it and save again.")
    return found


def _of_numbers(type: pa.DataType) -> pa.DataType:
    """What lists in lists hold at last."""
    return _of_numbers(type.value_type) if hasattr(type, "value_type") else type


def _label_column(table: pa.Table, features: dict[str, Any]) -> str | None:
    """By its usual name, or the only one that has names of classes."""
    named = next((name for name in LABELS if name in table.column_names), None)
    classes = [name for name, one in features.items() if isinstance(one, dict) and one.get("_type") == "ClassLabel"]
    return named or (classes[0] if len(classes) == 1 and classes[0] in table.column_names else None)


def _labels(folder: Path, values: list[Any]) -> list[int | None]:
    """-1 says that a label was not published."""
    for place, one in enumerate(values):
        if one is not None and type(one) is not int:
            raise DataError(f"{folder}, row {place}", "labels must be integers", repr(one)[:80], "Number the classes.")
    return [None if one is None or one == -1 else one for one in values]


def _picture(where: str, value: Any) -> Image:
    content = value.get("bytes") if isinstance(value, dict) else None
    if not isinstance(content, bytes):
        rule, remedy = "must hold the picture itself", "Save it with its pictures inside: cast_column, then map."
        raise DataError(where, rule, "the name of a file elsewhere", remedy)
    return open_image(BytesIO(content), where, turned=True)


def _contents(column: Any) -> Iterator[bytes]:
    return (_content(one.as_py()) for one in column)


def _content(value: Any) -> bytes:
    content = value.get("bytes") if isinstance(value, dict) else repr(value).encode()
    return content or b""


def _digest(column: Any, labels: list[int | None], how: str, identified: list[str]) -> str:
    """Of all rows, and in identified of each."""

    def sized() -> Iterator[bytes]:
        for one in _contents(column):
            rows.append(hashed([one]))
            yield from (str(len(one)).encode(), one)

    rows: list[str] = []
    parts = {"inputs": hashed(sized()), "labels": hashed([repr(labels).encode()]), "framing": hashed([how.encode()])}
    identified[:] = rows
    return write_digest(parts)

"""Counts that lanes of one input share stand in a part once: lanes that share draws often share most of their counts.

A cell that is equal to the first one of the same input, request and name in the part is written empty, and filled in
again when the part is read; nobody else sees the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ringfence.store.schema import CELLS, STAGE

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

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringfence.record import Record
from ringfence.store.parts import InputInfo, conditions, inputs_bytes, parquet_bytes, part_bytes, read_part
from ringfence.store.schema import RECORD_SCHEMA, from_table, to_table

Make = Callable[..., Record]
Same = Callable[[Record, Record], bool]


def test_the_schema_names_every_field_of_a_record() -> None:
    assert RECORD_SCHEMA.names == list(Record.__dataclass_fields__)


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_records_come_back_bit_by_bit(make_record: Make, same: Same, tmp_path, classes: int) -> None:
    records = [make_record(i, stages=i % 5, classes=classes) for i in range(12)]
    path = tmp_path / "part"
    path.write_bytes(part_bytes(to_table(records), environment=4, segment=2))
    assert conditions(path) == (4, 2)
    table = read_part(path)
    back = from_table(table)
    assert all(same(one, other) for one, other in zip(records, back, strict=True))
    assert table.schema.names == RECORD_SCHEMA.names


def test_odd_floats_keep_their_bits(make_record: Make, same: Same, tmp_path) -> None:
    odd = [0.0, -0.0, float("nan"), float("inf"), 5e-324, np.nextafter(0.25, 0), np.nextafter(0.25, 1)]
    records = [make_record(i, radius=float(value), p_a=float(value)) for i, value in enumerate(odd * 3)]
    (tmp_path / "part").write_bytes(part_bytes(to_table(records), 0, 0))
    back = from_table(read_part(tmp_path / "part"))
    assert all(same(one, other) for one, other in zip(records, back, strict=True))


def test_records_without_stages_and_no_records_at_all(make_record: Make, same: Same) -> None:
    records = [make_record(i, stages=0) for i in range(3)]
    assert all(same(one, other) for one, other in zip(records, from_table(to_table(records)), strict=True))
    assert from_table(to_table([])) == []


def test_a_slice_of_a_table_gives_its_own_records(make_record: Make, same: Same) -> None:
    records = [make_record(i, stages=i) for i in range(6)]
    back = from_table(to_table(records).slice(2, 3))
    assert all(same(one, other) for one, other in zip(records[2:5], back, strict=True))


READ = """
import os, sys
from pathlib import Path
from ringfence.store.parts import parse_inputs, read_part
before = os.listdir("/proc/self/task")
read_part(Path(sys.argv[1]))
parse_inputs(Path(sys.argv[2]), Path(sys.argv[2]).read_bytes())
sys.exit(len(os.listdir("/proc/self/task")) - len(before))
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for threads")
def test_no_other_thread_reads(make_record: Make, tmp_path: Path) -> None:
    """One of Arrow's that drops Python's bytes when the interpreter is on its way down aborts the process."""
    part, inputs = tmp_path / "part", tmp_path / "inputs.parquet"
    part.write_bytes(part_bytes(to_table([make_record(one) for one in range(9)]), 0, 0))
    inputs.write_bytes(inputs_bytes([InputInfo(one, None) for one in range(9)]))
    assert subprocess.run([sys.executable, "-c", READ, str(part), str(inputs)], check=False).returncode == 0


def test_the_file_is_compressed_with_checksums(make_record: Make) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(parquet_bytes(to_table([make_record(1)]))))
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_counts_that_lanes_share_stand_in_the_file_once(make_record: Make, same: Same, tmp_path) -> None:
    import pyarrow.parquet as pq

    first = make_record(3, "a")
    other = {"votes": first.stages[1].cells["votes"] + 1, "bits": first.stages[1].cells["bits"]}
    unlike = replace(first, lane="c", stages=(first.stages[0], replace(first.stages[1], cells=other)))
    later = replace(first, lane="d", stages=(first.stages[0], replace(first.stages[1], start=7)))
    records = [first, replace(first, lane="b"), unlike, later, replace(first, input_id=4)]
    (tmp_path / "part").write_bytes(part_bytes(to_table(records), 0, 0))
    back = from_table(read_part(tmp_path / "part"))
    assert all(same(one, two) for one, two in zip(records, back, strict=True))
    cells = pq.read_table(tmp_path / "part")["stages"].combine_chunks().values.field("cells").items
    # b repeats all six, c all four but its own votes, d those of its first request; the other input none.
    assert cells.null_count == 6 + 3 + 2


def test_a_part_whose_shared_counts_are_gone_is_refused(make_record: Make, tmp_path) -> None:
    import pyarrow.parquet as pq

    record = make_record(3, "a")
    (tmp_path / "part").write_bytes(part_bytes(to_table([record, replace(record, lane="b")]), 0, 0))
    pq.write_table(pq.read_table(tmp_path / "part").slice(1), tmp_path / "part")
    with pytest.raises(ValueError, match="counts are empty"):
        read_part(tmp_path / "part")

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from configs import altered

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.stats.norms import InNorm
from ringfence.store import SCHEMA_VERSION, InputInfo, RunConfig, RunFolder, StoreWarning
from ringfence.store.guarded import Guarded
from ringfence.store.parts import DAMAGE, read_part
from ringfence.store.writer import describe_environment

Make = Callable[..., Record]
Same = Callable[[Record, Record], bool]


def test_a_run_is_created_and_continued(config: RunConfig, tmp_path: Path) -> None:
    made = RunFolder.create_or_resume(tmp_path / "new" / "run", config)
    again = RunFolder.create_or_resume(made.path, config)
    assert again == made == RunFolder.open(made.path)
    assert made.done_ids() == set()
    assert made.read() == []
    assert made.records(["radius"]).num_rows == 0


def test_a_folder_without_records_takes_corrected_settings(config: RunConfig, tmp_path: Path) -> None:
    RunFolder.create_or_resume(tmp_path, config).add_forward_plan({"batch": 20})
    other = altered(config, {"sigma": 0.25})
    run = RunFolder.create_or_resume(tmp_path, other)
    assert RunFolder.open(tmp_path).config == run.config == other
    assert run.forward_plans() == []


def test_a_changed_config_is_refused_by_key_and_value(config: RunConfig, make_record: Make, tmp_path: Path) -> None:
    RunFolder.create_or_resume(tmp_path, config).append([make_record(0)])
    other = altered(config, {"sigma": 0.25, "procedure_settings": {"radius": 0.75}})
    with pytest.raises(StoreError) as caught:
        RunFolder.create_or_resume(tmp_path, other)
    message = str(caught.value)
    assert "sigma: 0.25 now, 0.5 in the run" in message
    assert "procedure.radius: 0.75 now, 0.5 in the run" in message
    assert "another `out`" in message
    assert "classes" not in message
    assert RunFolder.open(tmp_path).config == config


@pytest.mark.parametrize(
    "content", ['{"arch": "lenet", "plan": {"epochs": 1}}', '{"model_type": "vit", "num_labels": 10}', "[]", "not JSON"]
)
def test_the_config_of_a_training_or_a_model_is_never_replaced(config: RunConfig, tmp_path: Path, content: str) -> None:
    """Their folders have a config.json, too, and nothing else that a run would know them by."""
    (tmp_path / "config.json").write_text(content)
    (tmp_path / "model.safetensors").write_text("weights")
    with pytest.raises(StoreError, match=r"run or an empty folder; got a config.json that is no run's.*another `out`"):
        RunFolder.create_or_resume(tmp_path, config)
    assert (tmp_path / "config.json").read_text() == content
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_with_other_things_is_refused_and_left_alone(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"run or an empty folder.*thesis\.txt"):
        RunFolder.create_or_resume(tmp_path, config)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(StoreError, match="File name too long"):  # what the system refuses to look at is told, too
        RunFolder.create_or_resume(tmp_path / ("x" * 300), config)
    with pytest.raises(StoreError, match=r"run or an empty folder; got thesis\.txt, a file"):
        RunFolder.create_or_resume(tmp_path / "thesis.txt", config)
    with pytest.raises(StoreError, match=r"run folder; got a folder without config\.json"):
        RunFolder.open(tmp_path)
    with pytest.raises(StoreError, match="nothing there"):
        RunFolder.open(tmp_path / "nowhere")


def test_what_a_killed_start_left_behind_does_not_stand_in_the_way(config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / ".writing-123-config.json").write_text("{")
    assert RunFolder.create_or_resume(tmp_path, config).config == config


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_another_schema_is_refused_before_its_unknown_keys(config: RunConfig, tmp_path: Path, version: int) -> None:
    content = config.model_dump() | {"schema_version": version, "unheard_of": 1}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(StoreError, match=rf"must be {SCHEMA_VERSION},.*got {version}\. Read the run with the version"):
        RunFolder.open(tmp_path)


def test_a_flipped_bit_in_the_counts_is_noticed(
    config: RunConfig, make_record: Callable[..., Record], tmp_path: Path
) -> None:
    """By the checksums of the Parquet pages, whatever the manifest says."""
    part = RunFolder.create_or_resume(tmp_path / "run", config).append([make_record(i) for i in range(9)])
    content = bytearray(part.read_bytes())
    group = pq.ParquetFile(part).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    counts = next(one for one in columns if one.path_in_schema.endswith("value.list.element"))
    content[counts.data_page_offset + counts.total_compressed_size // 2] ^= 4
    part.write_bytes(content)
    with pytest.raises(DAMAGE):
        read_part(part)


@pytest.mark.parametrize(
    ("text", "said"), [("{", "must hold JSON"), ("{}", "classifier: Field required"), ("[]", "settings")]
)
def test_a_broken_config_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(StoreError, match=said):
        RunFolder.open(tmp_path)


def test_records_are_sorted_and_the_first_of_a_pair_stays(
    config: RunConfig, make_record: Make, same: Same, tmp_path: Path
) -> None:
    config = altered(config, {"lanes": ["a", "b", "é"]})
    run = RunFolder.create_or_resume(tmp_path, config)
    make = partial(make_record, config_hash=config.digest)
    first = [make(7, "b"), make(7, "a"), make(2, "b"), make(2, "a")]
    run.append(first)
    run.append([make(7, "a", radius=9.0), make(1, "é"), make(1, "a")])
    expected = [make(1, "a"), make(1, "é"), first[3], first[2], first[1], first[0]]
    assert all(same(one, other) for one, other in zip(expected, run.read(), strict=True))
    table = run.records(["radius", "input_id"])
    assert table.column_names == ["radius", "input_id"]
    assert table["input_id"].to_pylist() == [1, 1, 2, 2, 7, 7]


def test_an_input_is_done_with_all_its_lanes(config: RunConfig, make_record: Make, tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    run.append([make_record(1, "a"), make_record(1, "b"), make_record(2, "a")])
    assert run.done_ids() == {1}
    run.append([make_record(2, "b")])
    assert run.done_ids() == {1, 2}


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign"])
def test_a_damaged_part_is_left_out_and_named(
    config: RunConfig, make_record: Make, same: Same, tmp_path: Path, damage: str
) -> None:
    alone = altered(config, {"lanes": ["a"]})
    run = RunFolder.create_or_resume(tmp_path, alone)
    rows = [make_record(i, stages=20, config_hash=alone.digest) for i in range(3)]
    paths = [run.append([one]) for one in rows]
    content = bytearray(paths[1].read_bytes())
    if damage == "flipped":  # inside the counts: the rest of the file is well-formed
        column = next(
            chunk
            for chunk in (pq.ParquetFile(paths[1]).metadata.row_group(0).column(i) for i in range(40))
            if chunk.path_in_schema.endswith("value.list.element")
        )
        content[column.data_page_offset + column.total_compressed_size // 2] ^= 4
    kept = {"cut": content[:-40], "emptied": b"", "foreign": b"PAR1 no parquet PAR1"}.get(damage, content)
    paths[1].write_bytes(kept)
    with pytest.warns(StoreWarning, match=r"part-000001\.parquet was changed after it was written"):
        back = run.read()
    assert all(same(one, other) for one, other in zip([rows[0], rows[2]], back, strict=True))
    assert run.damaged == ["part-000001.parquet"]
    assert run.done_ids() == {0, 2}  # and no second warning
    assert run.append([rows[1]]).name == "part-000003.parquet"
    assert len(run.read()) == 3


def test_parts_name_their_environment_and_forward_plan(config: RunConfig, make_record: Make, tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    first = run.add_environment(describe_environment())
    assert run.add_forward_plan({"batch": 128, "shape": (3, 32)}) == 0
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        second = run.add_environment(describe_environment())
        assert run.add_environment(describe_environment()) == second == first + 1
    assert not heard  # the forward plan alone is no other environment
    metadata = pq.read_schema(run.append([make_record(1)], second)).metadata
    assert metadata[b"ringfence.environment"] == b"1"
    assert metadata[b"ringfence.forward_plan"] == b"0"
    assert run.forward_plans() == [{"batch": 128, "shape": [3, 32]}]
    entry = run.environments()[0]
    assert {"python", "torch", "numpy", "scipy", "ringfence", "platform", "cpu", "gpu", "forward_plan"} == entry.keys()
    with pytest.warns(StoreWarning, match="torch: 1.0 now"):
        run.add_environment(entry | {"torch": "1.0"})


def test_inputs_and_summary_come_back(config: RunConfig, tmp_path: Path) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    assert run.inputs() == []
    assert run.summary() is None
    picture = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    run.write_inputs([InputInfo(3, 7, "seven.png", picture), InputInfo(4, None)])
    seven, other = run.inputs()
    assert (seven.id, seven.label, seven.name) == (3, 7, "seven.png")
    assert seven.thumbnail is not None
    assert np.array_equal(seven.thumbnail, picture)
    assert other == InputInfo(4, None)
    run.write_summary({"acr": np.float64(0.5)})
    assert run.summary() == {"acr": 0.5}
    (tmp_path / "inputs.parquet").write_bytes(b"")
    with pytest.raises(StoreError, match=r"inputs\.parquet"):
        run.inputs()


def test_one_reading_of_the_summary_tells_the_other_norm_of_all_parts(
    config: RunConfig, make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    shown = run.in_norm(InNorm("linf"))
    assert list(shown.tables()) == []  # nothing to convert needs no number of coordinates
    for number in (1, 2, 3):
        run.append([make_record(number)])
    run.write_summary({"shape": [1, 2, 2]})
    asked: list[str] = []

    def read(files: Guarded, name: str, plainly: Callable[[Guarded, str], bytes | None] = Guarded.read) -> bytes | None:
        asked.append(name)
        return plainly(files, name)

    monkeypatch.setattr(Guarded, "read", read)
    halves = [half for table in shown.tables(["radius"]) for half in table["radius"].to_pylist()]
    assert halves == pytest.approx([0.05, 0.1, 0.15])  # l2 to linf in four coordinates
    assert asked == ["summary.json"]


def test_parts_made_alike_are_joined_without_changing_a_record(
    config: RunConfig, make_record: Make, tmp_path: Path
) -> None:
    run = RunFolder.create_or_resume(tmp_path / "run", config)
    for number in (4, 2, 3):
        run.append([make_record(number)], environment=0)
    run.append([make_record(1)], environment=1)
    run.add_forward_plan({"batch": 100})
    run.append([make_record(5)], environment=0)
    before = run.records()
    run.merge_parts()
    assert run.records().equals(before)
    # One part per pair of environment and forward plan, and each still names its own.
    made = [pq.read_schema(part).metadata for part in (run.path / "parts").iterdir()]
    named = sorted((int(one[b"ringfence.environment"]), int(one[b"ringfence.forward_plan"])) for one in made)
    assert named == [(0, -1), (0, 0), (1, -1)]
    run.merge_parts()
    assert run.records().equals(before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"radius": float("nan")}, "radius is outside 0 to"),
        ({"radius": float("inf")}, "radius is outside 0 to"),
        ({"seconds": -1.0}, "seconds is outside"),
        ({"alpha": 2.0}, "alpha is outside 0 to 1"),
        ({"draws": -1}, "draws is outside"),
        ({"prediction": 2**40}, "prediction is outside"),
        ({"label": -2}, "label is outside"),
        ({"target": float("nan")}, "target is outside"),
        ({"lane": "c"}, "know no lane 'c'"),
        ({"classes": 9}, "votes are not those of 10 classes"),
    ],
)
def test_a_part_with_numbers_that_nobody_wrote_is_not_counted(
    config: RunConfig, make_record: Make, tmp_path: Path, changes: dict[str, float], said: str
) -> None:
    run = RunFolder.create_or_resume(tmp_path, config)
    run.append([make_record(1, "a"), make_record(1, "b")])
    run.append([make_record(2, "a"), make_record(**{"input_id": 2, "lane": "b", **changes})])
    with pytest.warns(StoreWarning, match=said):
        assert run.done_ids() == {1}

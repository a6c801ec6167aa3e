from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ringfence.analysis import metrics
from ringfence.errors import StoreError
from ringfence.procedures import Softmax
from ringfence.record import Record, StageTally
from ringfence.report.lanes import streams_of
from ringfence.report.reading import load, short_names
from ringfence.report.summary import summary_table
from ringfence.store import RunFolder, StoreWarning
from ringfence.types import BINS, SCORE_EDGES

FakeRun = Callable[..., RunFolder]
LOG = Path(__file__).resolve().parents[1] / "fixtures" / "cohen" / "cifar10_noise_0.25_sigma_0.25"


def test_lanes_carry_the_metrics_of_their_run(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "r", lanes=("a", "b"))
    found = load([tmp_path / "r"])
    assert [lane.name for lane in found.lanes] == ["a", "b"]
    for lane in found.lanes:
        assert lane.metrics_at([0.0, 0.25]).acr == metrics(run, [0.0], lane.lane).acr
        assert len(lane.records) == len(lane.streams) == 40
        assert not any(entry.cells for record in lane.records for entry in record.stages)
    assert found.remarks == []


def test_lanes_name_their_run_where_there_are_several(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "r", lanes=("a", "b"))
    fake_run(tmp_path / "s")
    assert [lane.name for lane in load([tmp_path / "r", tmp_path / "s"]).lanes] == ["r · a", "r · b", "s"]


def test_lanes_of_one_pass_have_no_rate_of_their_own(fake_run: FakeRun, tmp_path: Path) -> None:
    """All have the same draws, and each a part of the time: one lane's draws over its time would be too many."""
    fake_run(tmp_path / "r", lanes=("a", "b"))
    fake_run(tmp_path / "s")
    table = summary_table(load([tmp_path / "r", tmp_path / "s"]))
    place = [column["name"] for column in table["columns"]].index("draws/s")
    *lanes, alone = (row["cells"][place][0] for row in table["rows"])
    assert lanes == ["-", "-"]
    assert alone != "-"


def test_streams_keep_the_largest_counts(fake_run: FakeRun, tmp_path: Path) -> None:
    records = fake_run(tmp_path / "r").read()
    for record, own in zip(records, load([tmp_path / "r"]).lanes[0].streams, strict=True):
        assert [stream.stage for stream in own] == [0, 1]
        votes = record.stages[-1].cells["votes"]
        assert own[-1].weights == tuple(sorted((float(v) for v in votes[:-1] if v), reverse=True))
        chosen = record.prediction if record.prediction >= 0 else int(votes.argmax())
        assert own[-1].share == votes[chosen] / 500


def test_streams_of_scores_are_sums() -> None:
    cells = np.zeros(2 * BINS + 1, np.int64)
    cells[BINS - 1], cells[BINS], cells[-1] = 9, 9, 2
    stages = (StageTally(1, 0, 10, {"scores": cells}),)
    facts = {"lane": "", "label": 0, "radius": 0.1, "p_a": 0.6, "p_b": 0.4, "alpha": 0.001, "procedure": Softmax.name}
    record = Record(1, prediction=0, sound=True, seed=0, draws=10, forwards=10, seconds=0.0, stages=stages, **facts)  # type: ignore[arg-type]
    (stream,) = streams_of(record)
    assert stream.scored
    assert stream.invalid == 1
    assert stream.classes == (0, 1)
    assert stream.weights[0] == pytest.approx(9 * (SCORE_EDGES[-1] + SCORE_EDGES[-2]) / 2)


def test_a_log_is_a_lane_without_counts() -> None:
    (lane,) = load([LOG]).lanes
    assert lane.config is None
    assert lane.ceiling is None
    assert not lane.metrics.sound
    assert np.isnan(lane.share).all()


def test_unfinished_and_damaged_runs_are_read_with_a_remark(fake_run: FakeRun, tmp_path: Path) -> None:
    run = fake_run(tmp_path / "r", count=100)
    with pytest.warns(StoreWarning, match="40 of 100 inputs"):
        run.append(run.read()[:2])
    (tmp_path / "r" / "parts" / "part-000001.parquet").write_bytes(b"half")
    found = load([tmp_path / "r"])
    assert len(found.lanes[0].records) == 40
    said = " ".join(found.remarks)
    assert "40 of 100 inputs" in said
    assert "part-000001.parquet was changed after it was written" in said


def test_unreadable_pictures_are_a_remark(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "r")
    (tmp_path / "r" / "inputs.parquet").write_bytes(b"not a table")
    found = load([tmp_path / "r"])
    assert "inputs.parquet was changed after it was written" in found.remarks[0]
    assert "pictures could not be read" in found.remarks[1]


def test_bad_folders_are_refused_by_name(fake_run: FakeRun, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(StoreError, match="must be a run folder"):
        load([empty])
    config = fake_run(tmp_path / "r").config
    bare = RunFolder.create_or_resume(tmp_path / "bare", config)
    with pytest.raises(StoreError, match="at least one record"):
        load([bare.path])
    newer = bare.path / "config.json"
    newer.write_text(json.dumps({**json.loads(newer.read_text()), "schema_version": 999}))
    with pytest.raises(StoreError, match="version of ringfence that wrote it"):
        load([bare.path])


def test_names_are_as_short_as_they_can_be() -> None:
    assert short_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert short_names(["x/a", "y/a", "z/b"]) == ["x/a", "y/a", "b"]
    assert short_names(["x/a", "x/a"]) == ["x/a", "x/a (2)"]


def test_a_run_whose_only_part_was_changed_says_so(fake_run: FakeRun, tmp_path: Path) -> None:
    fake_run(tmp_path / "r")
    part = tmp_path / "r" / "parts" / "part-000000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"got none that counts: parts/part-000000\.parquet"):
        load([tmp_path / "r"])

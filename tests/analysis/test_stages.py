from __future__ import annotations

import json

import numpy as np
import pytest

from ringfence.analysis import stage_summary
from ringfence.errors import ArgumentError
from ringfence.record import Record, StageTally


def record(procedure: str, certified: bool, *stages: tuple[int, int]) -> Record:
    """A record whose stages are (stage, draws) after 100 draws that chose the class."""
    entries = tuple(
        StageTally(stage, 0, draws, {"votes": np.array([draws, 0])}) for stage, draws in ((0, 100), *stages)
    )
    drawn = sum(entry.draws for entry in entries)
    prediction = 0 if certified else -1
    target = None if procedure == "fixed" else 0.5
    return Record(
        0, "", 0, prediction, 0.5, 0.9, 0.1, 1e-3, procedure, True, 0, drawn, drawn, 0.0, target, stages=entries
    )


def test_stages_by_hand() -> None:
    records = [
        record("staged", True, (1, 1000)),
        record("staged", False, (1, 1000)),
        record("staged", True, (1, 1000), (2, 10_000)),
        record("staged", False, (1, 1000), (2, 10_000), (3, 125_000)),
    ]
    found = stage_summary(records)
    assert [(one.index, one.draws) for one in found.shares] == [(1, 1000), (2, 10_000), (3, 125_000)]
    assert [one.asa for one in found.shares] == [25, 0, 25]
    assert [one.asc for one in found.shares] == [25, 25, 0]
    assert [one.asr for one in found.shares] == [50, 25, 25]
    assert found.draws_per_input == (1100 + 1100 + 11_100 + 136_100) / 4
    assert found.sample_rf == pytest.approx(100_100 / found.draws_per_input)
    assert found.sample_rf_estimation == pytest.approx(100_000 / (found.draws_per_input - 100))
    assert found.sample_rf_paper == pytest.approx(100_100 / (100 + 0.5 * 1000 + 0.25 * 10_000 + 0.25 * 125_000))
    assert found.sample_rf_paper > found.sample_rf  # the paper leaves the earlier stages out
    assert json.loads(json.dumps(found.to_dict()))["shares"][1]["asc"] == 25


def test_looks_by_hand() -> None:
    records = [
        record("sequential", True, (1, 100)),
        record("sequential", False, (1, 100), (1, 100), (1, 200)),
        record("sequential", True, (1, 100), (1, 100), (1, 200)),
        record("sequential", True, (1, 100), (1, 100), (1, 200)),
    ]
    found = stage_summary(records)
    assert [one.draws for one in found.shares] == [100, 200, 400]
    assert [one.asr for one in found.shares] == [25, 0, 75]
    assert [one.asa for one in found.shares] == [0, 0, 25]
    assert found.estimation_draws_per_input == 325
    assert found.sample_rf == pytest.approx(100_100 / 425)
    assert found.sample_rf_paper == pytest.approx(found.sample_rf)


def test_other_records_are_refused() -> None:
    for records in (
        [],
        [record("fixed", True, (1, 10))],
        [record("staged", True, (1, 1)), record("fixed", True, (1, 1))],
    ):
        with pytest.raises(ArgumentError, match="one procedure"):
            stage_summary(records)
    with pytest.raises(ArgumentError, match="tallies of their stages"):
        stage_summary([record("staged", True)])

"""Replay decides again from stored counts, and names what does not fit instead of failing on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ringfence.errors import StoreError
from ringfence.mechanisms import neyman_pearson
from ringfence.procedures import Fixed, Given, claims
from ringfence.procedures.replay import decided_again, replay
from ringfence.record import Record, StageTally

GIVEN, TEST = Given(3, 0.5, neyman_pearson), Fixed(n0=10, n=100)


def record(*stages: StageTally) -> Record:
    return Record(7, "main", 0, 0, 0.1, 0.9, 0.1, 1e-3, "fixed", True, 0, 110, 110, 0.0, stages=stages)


FIRST = StageTally(0, 0, 10, {"votes": np.array([10, 0, 0, 0])})
SECOND = StageTally(1, 0, 100, {"votes": np.array([90, 10, 0, 0])})


def test_counts_decide_again() -> None:
    again = replay(TEST, GIVEN, [record(FIRST, SECOND), record(FIRST)])
    assert again.misfits == []
    assert again.wanted.tolist() == [0, 100]
    prediction, radius, _ = claims(again.decisions, GIVEN)
    assert prediction.tolist() == [0, -1]
    assert radius[0] > 0
    assert len(replay(TEST, GIVEN, []).state) == 0


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("cells of votes of request 1", {"cells": {}}),
        ("cells of votes of request 1", {"cells": {"votes": np.array([100])}}),
        ("cells of votes of request 1", {"cells": {"votes": np.array([], np.int64)}}),
        ("votes of request 1", {"cells": {"votes": np.array([110, -10, 0, 0])}}),
        ("votes of request 1", {"cells": {"votes": np.array([200, 0, 0, 0])}}),
        ("request 1 (stage, start, draws)", {"draws": 0, "cells": {"votes": np.array([0, 0, 0, 0])}}),
        ("request 1 (stage, start, draws)", {"stage": 2}),
        ("request 1 (stage, start, draws)", {"start": 5}),
    ],
)
def test_what_does_not_fit_is_named(what: str, changes: dict[str, Any]) -> None:
    spoiled = record(FIRST, replace(SECOND, **changes))
    again = replay(TEST, GIVEN, [record(FIRST, SECOND), spoiled])
    assert what in {one.what for one in again.misfits}
    assert {one.row for one in again.misfits} == {1}
    with pytest.raises(StoreError, match=r"of input 7.*See ringfence verify"):
        decided_again(TEST, GIVEN, [spoiled], "runs/x")


def test_more_requests_than_were_made_are_named() -> None:
    again = replay(TEST, GIVEN, [record(FIRST, SECOND, SECOND)])
    assert [one.what for one in again.misfits] == ["request 2 (stage, start, draws)"]

"""Natural accuracy: the share of inputs that PREDICT answers rightly, from counts a run holds anyway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from ringfence.procedures.replay import counted_by_predict

if TYPE_CHECKING:
    from ringfence.report.lanes import Lane

_HOW = {"procedure", "procedure_settings", "mechanism", "mechanisms", "seed"}
"""Settings that say how a classifier was asked, not which one on which inputs."""


@final
@dataclass(frozen=True)
class Natural:
    """The share right (None without labels) under PREDICT with so many draws at alpha; run: whose draws they were."""

    accuracy: float | None
    draws: int
    alpha: float
    run: str


def natural(lane: Lane, lanes: Sequence[Lane]) -> Natural | None:
    """Natural accuracy of a lane: by a predict run about the same classifier and inputs if one is there, else its own.

    The first such run named decides, before any number is looked at.
    """
    asked = lane if _predicts(lane) else next((other for other in lanes if _answers_for(other, lane)), lane)
    if asked.test is None or asked.natural is None or not lane.records:
        return None
    by_id = dict(zip(asked.columns.input_id.tolist(), asked.natural.tolist(), strict=True))
    judged = [by_id[one.input_id] == one.label for one in lane.records if one.label is not None]
    return Natural(
        float(np.mean(judged)) if judged else None,
        counted_by_predict(asked.records[0]).draws,
        asked.test.alpha,
        asked.run,
    )


def _predicts(lane: Lane) -> bool:
    """Whether the lane is a predict run: its procedure is its own predictor."""
    return lane.test is not None and lane.test.predictor(1) is lane.test


def _answers_for(other: Lane, lane: Lane) -> bool:
    """Whether other is a predict run about the lane's classifier that has every input of the lane."""
    if lane.test is None or lane.config is None or other.config is None or other.lane != lane.lane:
        return False
    if not _predicts(other) or type(lane.test.predictor(1)) is not type(other.test):
        return False
    ours, theirs = (one.model_dump(exclude=_HOW) for one in (lane.config, other.config))
    return ours == theirs and set(lane.columns.input_id) <= set(other.columns.input_id)

"""Natural accuracy: the share of inputs that PREDICT answers rightly (METHODS 0), from counts a run holds anyway.

PREDICT needs a number of draws that no outcome could change. The request after the one that chose the class is such a
number in every procedure: the n draws of fixed sampling, the first stage, the first look. Later requests of adaptive
procedures are not, because easy inputs stop before them; they are never used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from ringfence.procedures import (
    AcesCertify,
    AcesPredict,
    AcesSequential,
    Anytime,
    Fixed,
    Given,
    Multinomial,
    Predict,
    Procedure,
    Sequential,
    Staged,
    TwoSided,
)
from ringfence.record import Record, StageTally
from ringfence.types import ABSTAIN, IntArray, Tally

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


def predictor(test: Procedure | None, draws: int) -> Predict | AcesPredict | None:
    """PREDICT for the smoothed classifier that the procedure is about; None where PREDICT does not speak of it.

    Softmax certifies the class of the largest mean score, after-smoothing a choice among members: votes decide neither.
    """
    match test:
        case Predict() | AcesPredict():
            return test
        case Fixed() | TwoSided() | Multinomial() | Staged() | Sequential() | Anytime():
            return Predict(test.alpha, draws)
        case AcesCertify() | AcesSequential():
            return AcesPredict(test.alpha, draws, test.form)
        case _:
            return None


def natural_answers(records: Sequence[Record], test: Procedure | None, given: Given) -> IntArray | None:
    """PREDICT's classes (records,), ABSTAIN where its test fails; None where it has no draws of a fixed number."""
    counted = [_counted(record) for record in records if record.stages]
    draws = {entry.draws for entry in counted}
    if len(counted) != len(records) or len(draws) != 1:
        return None
    predict = predictor(test, next(iter(draws)))
    if predict is None:
        return None
    needed = ("votes", "bits") if isinstance(predict, AcesPredict) else ("votes",)
    if not all(name in entry.cells for entry in counted for name in needed):
        return None
    cells = {name: np.stack([np.asarray(entry.cells[name]) for entry in counted]) for name in needed}
    core = np.array([record.facts.get("core", ABSTAIN) for record in records], np.int64)
    known = Given(given.num_classes, given.sigma, given.norm_bound, {"core": core})
    tally = Tally(cells, np.array([entry.draws for entry in counted], np.int64))
    return predict.conclude(predict.update(predict.start(len(records), known), tally)).prediction


def natural(lane: Lane, lanes: Sequence[Lane]) -> Natural | None:
    """Natural accuracy of a lane: by a predict run about the same classifier and inputs if one is there, else its own.

    The first such run named decides, before any number is looked at.
    """
    own = isinstance(lane.test, Predict | AcesPredict)
    asked = lane if own else next((other for other in lanes if _answers_for(other, lane)), lane)
    if asked.test is None or asked.natural is None or not lane.records:
        return None
    by_id = dict(zip(asked.ids.tolist(), asked.natural.tolist(), strict=True))
    judged = [by_id[one.input_id] == one.label for one in lane.records if one.label is not None]
    return Natural(
        float(np.mean(judged)) if judged else None, _counted(asked.records[0]).draws, asked.test.alpha, asked.run
    )


def _counted(record: Record) -> StageTally:
    """The request that PREDICT reads: the one after the choice of the class, the only one where nothing was chosen."""
    return record.stages[min(1, len(record.stages) - 1)]


def _answers_for(other: Lane, lane: Lane) -> bool:
    """Whether other is a predict run about the lane's classifier that has every input of the lane."""
    if not isinstance(other.test, Predict | AcesPredict) or other.config is None or lane.config is None:
        return False
    if type(predictor(lane.test, 1)) is not type(other.test) or other.lane != lane.lane:
        return False
    ours, theirs = (one.model_dump(exclude=_HOW) for one in (lane.config, other.config))
    return ours == theirs and set(lane.ids.tolist()) <= set(other.ids.tolist())

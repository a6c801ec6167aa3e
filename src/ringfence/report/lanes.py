"""What a report is made of: every lane of every run as records without their bulk, with its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from ringfence.analysis.columns import Columns, columns_of, score_sums
from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.procedures import Procedure
from ringfence.procedures.replay import counted_by_predict
from ringfence.record import Record, StageTally
from ringfence.store import CohenLog, InputInfo, RunConfig, RunFolder
from ringfence.store.attack import AttackResult
from ringfence.store.claims import given_of, procedure_of
from ringfence.types import ABSTAIN, FloatArray, IntArray

MOST_CLASSES = 6
_SMALL = 4
"""Other cells up to this many are kept as they are (ACES's two bits)."""


@final
@dataclass(frozen=True)
class Stream:
    """One stream of draws: stage 0 chose the class, later ones estimate it.

    classes and weights: the largest, in decreasing order; weights are votes, or sums of softmax scores where
    scored. share is the weight of the record's class (of the largest one where it abstained) over draws.
    """

    stage: int
    requests: int
    draws: int
    classes: tuple[int, ...]
    weights: tuple[float, ...]
    invalid: int
    scored: bool
    share: float
    other: tuple[tuple[str, tuple[int, ...]], ...] = ()


def streams_of(record: Record) -> tuple[Stream, ...]:
    """The record's streams, in the order of their stage; empty for an imported record."""
    stages = sorted({entry.stage for entry in record.stages})
    return tuple(_stream(record, [entry for entry in record.stages if entry.stage == stage]) for stage in stages)


def _stream(record: Record, entries: list[StageTally]) -> Stream:
    draws = sum(entry.draws for entry in entries)
    sums: dict[str, IntArray] = {}
    for entry in entries:
        for name, cells in entry.cells.items():
            sums[name] = sums[name] + cells if name in sums else np.asarray(cells, np.int64)
    scored = "scores" in sums and "votes" not in sums
    weights, invalid = _scores(sums["scores"]) if scored else _votes(sums.get("votes"))
    order = np.argsort(-weights, kind="stable")[:MOST_CLASSES]
    kept = order[weights[order] > 0]
    chosen = record.prediction if record.prediction != ABSTAIN else int(order[0]) if len(order) else ABSTAIN
    known = 0 <= chosen < len(weights) and draws > 0
    small = [(name, cells) for name, cells in sums.items() if name not in ("votes", "scores") and len(cells) <= _SMALL]
    return Stream(
        stage=entries[0].stage,
        requests=len(entries),
        draws=draws,
        classes=tuple(int(one) for one in kept),
        weights=tuple(float(weights[one]) for one in kept),
        invalid=invalid,
        scored=scored,
        share=float(weights[chosen] / draws) if known else float("nan"),
        other=tuple((name, tuple(int(cell) for cell in cells)) for name, cells in small),
    )


def _votes(cells: IntArray | None) -> tuple[FloatArray, int]:
    """Votes per class (K,) and invalid draws; the last cell counts those."""
    if cells is None or not len(cells):
        return np.zeros(0), 0
    return cells[:-1].astype(np.float64), int(cells[-1])


def _scores(cells: IntArray) -> tuple[FloatArray, int]:
    """Sums of scores per class (K,), and invalid draws."""
    sums = score_sums(cells)
    return sums, int(cells[-1]) // max(len(sums), 1)


@final
@dataclass(frozen=True)
class Lane:
    """One lane of a run, or a log.

    name: how the report calls it, unique among all lanes; records: by input id, their counts taken out and
    reduced to streams, one tuple per record. source gives metrics; config is None for a log.
    natural: PREDICT's answers (records,) from the lane's own counts, None where it has none.
    """

    name: str
    run: str
    lane: str
    source: RunFolder | CohenLog
    records: Sequence[Record]
    streams: Sequence[tuple[Stream, ...]]
    natural: IntArray | None = field(default=None, compare=False)
    found: dict[Any, list[RunMetrics]] = field(default_factory=dict, compare=False)
    """Metrics of all lanes of the run by radii: shared by its lanes, so that the disk is read once."""

    @property
    def config(self) -> RunConfig | None:
        """The settings of the run."""
        return self.source.config if isinstance(self.source, RunFolder) else None

    @property
    def factor(self) -> float:
        """What radii of the proved norm were multiplied by to be shown."""
        return self.source.factor if isinstance(self.source, RunFolder) else 1.0

    @property
    def radius_in_words(self) -> str:
        """What an axis of radii is called: their norm, and the one they were proved in."""
        proved = "l2" if self.config is None else self.config.norm
        return f"{self.source.norm} radius" + ("" if self.source.norm == proved else f" (proved in {proved})")

    @property
    def theta(self) -> float | None:
        """The threshold of ACES that this lane is; None where it is none."""
        return None if self.config is None else self.config.classifier.lane(self.lane).theta

    @cached_property
    def metrics(self) -> RunMetrics:
        """The field's metrics at the usual radii the lane can answer for."""
        return self.metrics_at(None)

    def metrics_at(self, radii: Sequence[float] | None, beside: Sequence[float] = ()) -> RunMetrics:
        """Metrics at these radii: what ``ringfence metrics`` prints is what the report plots; None: at the usual ones,
        and those of lanes beside it."""
        key = None if radii is None else tuple(radii), tuple(beside)
        if key not in self.found:
            self.found[key] = metrics_by_lane(self.source, radii, self.run, beside)
        return next(one for one in self.found[key] if one.lane in (None, self.lane))

    @cached_property
    def columns(self) -> Columns:
        """The records as arrays (records,)."""
        return columns_of(self.records)

    @cached_property
    def share(self) -> FloatArray:
        """Estimate of p_A (records,): the chosen class's share of the last draws; NaN without counts."""
        return np.array([each[-1].share if each else np.nan for each in self.streams])

    @property
    def known_radius(self) -> bool:
        """Whether the run tried radii known beforehand, so that nothing is known between them."""
        return self.metrics.target is not None

    @cached_property
    def test(self) -> Procedure | None:
        """The procedure with its settings; None for a log."""
        return None if self.config is None else procedure_of(self.config)

    @property
    def claims_radius(self) -> bool:
        """False for PREDICT, whose radius of 0 is no claim and not a poor one."""
        return self.test is None or self.test.claims_radius

    @property
    def ceiling(self) -> float | None:
        """The radius that the most favourable counts would prove; None where no radius is claimed."""
        if self.test is None or self.config is None or not self.test.claims_radius:
            return None
        given = given_of(self.config)
        return None if given is None else self.test.best_case(given) * self.factor


@final
@dataclass(frozen=True)
class Training:
    """The log of a training, and the names of its objective and that one's base where they are known."""

    name: str
    log: Path
    objectives: frozenset[str] = frozenset()


@final
@dataclass(frozen=True)
class Extras:
    """What else was named beside runs, with short names."""

    training: Sequence[Training] = ()
    variance: Sequence[tuple[str, Mapping[str, Any]]] = ()
    attacks: Sequence[tuple[str, AttackResult]] = ()


@final
@dataclass(frozen=True)
class Material:
    """Everything that was found: lanes, the inputs of every run, remarks for the reader, and what came beside runs."""

    lanes: Sequence[Lane]
    inputs: Mapping[str, Sequence[InputInfo]]
    remarks: Sequence[str]
    extras: Extras = field(default_factory=Extras)

    def natural(self, lane: Lane) -> Natural | None:
        """Natural accuracy of a lane: by a predict run about the same classifier and inputs if one is there, else its
        own. The first such run named decides, before any number is looked at.
        """
        asked = lane if _predicts(lane) else next((other for other in self.lanes if _answers_for(other, lane)), lane)
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

    @cached_property
    def radii(self) -> list[float]:
        """At which certified accuracies are shown: the usual ones of all lanes."""
        return sorted({radius for lane in self.lanes for radius in lane.metrics.certified_accuracy})

    def metrics_of(self, lane: Lane) -> RunMetrics:
        """The metrics of a lane at these radii, as far as it can tell."""
        return lane.metrics_at(None, () if set(self.radii) == lane.metrics.certified_accuracy.keys() else self.radii)

    @property
    def runs(self) -> dict[str, list[Lane]]:
        """Lanes by the name of their run."""
        found: dict[str, list[Lane]] = {}
        for lane in self.lanes:
            found.setdefault(lane.run, []).append(lane)
        return found


_HOW = {"procedure", "mechanisms", "seed"}
"""Settings that say how a classifier was asked, not which one on which inputs."""


@final
@dataclass(frozen=True)
class Natural:
    """The share right (None without labels) under PREDICT with so many draws at alpha; run: whose draws they were."""

    accuracy: float | None
    draws: int
    alpha: float
    run: str


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

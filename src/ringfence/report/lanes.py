"""What a report is made of: every lane of every run as records without their bulk, with its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.errors import RingfenceError
from ringfence.procedures import Procedure, procedure
from ringfence.record import Record
from ringfence.report.natural import Natural, natural
from ringfence.report.streams import Stream
from ringfence.store import CohenLog, InputInfo, RunConfig, RunFolder
from ringfence.store.attack import AttackResult
from ringfence.types import BoolArray, FloatArray, IntArray


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
    found: dict[tuple[float, ...] | None, list[RunMetrics]] = field(default_factory=dict, compare=False)
    """Metrics of all lanes of the run by radii: shared by its lanes, so that the disk is read once."""

    @property
    def config(self) -> RunConfig | None:
        """The settings of the run."""
        return self.source.config if isinstance(self.source, RunFolder) else None

    @cached_property
    def metrics(self) -> RunMetrics:
        """The field's metrics at the usual radii the lane can answer for."""
        return self.metrics_at(None)

    def metrics_at(self, radii: Sequence[float] | None) -> RunMetrics:
        """Metrics at these radii: what ``ringfence metrics`` prints is what the report plots."""
        key = None if radii is None else tuple(radii)
        if key not in self.found:
            self.found[key] = metrics_by_lane(self.source, radii, self.run)
        return next(one for one in self.found[key] if one.lane in (None, self.lane))

    def column(self, name: str) -> FloatArray:
        """A numeric field of the records (records,); NaN where it is None."""
        values = [getattr(record, name) for record in self.records]
        return np.array([np.nan if value is None else value for value in values], np.float64)

    @cached_property
    def ids(self) -> IntArray:
        """Input ids, increasing."""
        return np.array([record.input_id for record in self.records], np.int64)

    @cached_property
    def labelled(self) -> BoolArray:
        """Which records (records,) have a label: only those count for accuracies."""
        return np.array([record.label is not None for record in self.records], np.bool_)

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
        return self.test is None or self.ceiling is not None

    @property
    def ceiling(self) -> float | None:
        """The radius that the most favourable counts would prove; None where no radius is claimed."""
        if self.test is None or self.config is None:
            return None
        largest = self.test.largest_radius(self.config.noise.sigma)
        return largest / self.config.lift.norm_bound if largest > 0 else None


def procedure_of(config: RunConfig) -> Procedure | None:
    """The procedure with the run's settings; None for an imported log, whose procedure is not known."""
    try:
        return procedure(config.procedure.name, config.procedure.settings)
    except RingfenceError:
        return None


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
        """Natural accuracy of a lane, by a predict run among the others where one speaks of the same classifier."""
        return natural(lane, self.lanes)

    @property
    def runs(self) -> dict[str, list[Lane]]:
        """Lanes by the name of their run."""
        found: dict[str, list[Lane]] = {}
        for lane in self.lanes:
            found.setdefault(lane.run, []).append(lane)
        return found

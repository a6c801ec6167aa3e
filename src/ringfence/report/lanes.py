"""What a report is made of: every lane of every run as records without their bulk, with its metrics."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from ringfence.analysis.metrics import RunMetrics, metrics_by_lane
from ringfence.errors import RingfenceError, StoreError
from ringfence.procedures import Procedure, procedure
from ringfence.record import Record
from ringfence.report.streams import Stream, streams_of
from ringfence.store import CohenLog, InputInfo, RunConfig, RunFolder, StoreWarning, read_cohen
from ringfence.store.parts import read_parts
from ringfence.store.schema import from_table
from ringfence.types import BoolArray, FloatArray, IntArray


@final
@dataclass(frozen=True)
class Lane:
    """One lane of a run, or a log.

    name: how the report calls it, unique among all lanes; records: by input id, their counts taken out and
    reduced to streams, one tuple per record. source gives metrics; config is None for a log.
    """

    name: str
    run: str
    lane: str
    source: RunFolder | CohenLog
    records: Sequence[Record]
    streams: Sequence[tuple[Stream, ...]]
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
        if self.config is None:
            return None
        try:
            return procedure(self.config.procedure, self.config.procedure_settings)
        except RingfenceError:  # an imported log, whose procedure is not known
            return None

    @property
    def ceiling(self) -> float | None:
        """The radius that the most favourable counts would prove; None where no radius is claimed."""
        if self.test is None or self.config is None:
            return None
        largest = self.test.largest_radius(self.config.sigma)
        return largest / float(self.config.lift.get("norm_bound", 1.0)) if largest > 0 else None


@final
@dataclass(frozen=True)
class Material:
    """Everything that was found: lanes, the inputs of every run, and remarks for the reader."""

    lanes: Sequence[Lane]
    inputs: Mapping[str, Sequence[InputInfo]]
    remarks: Sequence[str]
    extras: Mapping[str, Any]

    @property
    def runs(self) -> dict[str, list[Lane]]:
        """Lanes by the name of their run."""
        found: dict[str, list[Lane]] = {}
        for lane in self.lanes:
            found.setdefault(lane.run, []).append(lane)
        return found


def gather(paths: Sequence[str | Path], extras: Mapping[str, Any] | None = None) -> Material:
    """Read run folders and Cohen-style logs; one that holds no record is refused, damage becomes a remark."""
    names = short_names([str(path) for path in paths])
    lanes: list[Lane] = []
    inputs: dict[str, Sequence[InputInfo]] = {}
    remarks: list[str] = []
    for path, name in zip(paths, names, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreWarning)
            found, pictures, said = _read(Path(path), name)
        remarks += [str(one.message) for one in caught if issubclass(one.category, StoreWarning)] + said
        lanes += found
        inputs[name] = pictures
    return Material(lanes, inputs, remarks, extras or {})


def short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of the paths, as many as tell them apart; repeated paths are numbered."""
    parts = [Path(path).parts or (path,) for path in paths]
    names = []
    for own in parts:
        length = 1
        while length < len(own) and sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        names.append("/".join(own[-length:]))
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            names[place] = f"{name} ({seen[name]})"
    return names


def _read(path: Path, name: str) -> tuple[list[Lane], Sequence[InputInfo], list[str]]:
    if path.is_file():
        log = read_cohen(path)
        return [Lane(name, name, "", log, _log_records(log), [()] * len(log))], [], list(log.notes)
    run = RunFolder.open(path)
    by_lane = _light_records(run)
    if not by_lane:
        raise StoreError(str(path), "must hold at least one record", "none", "Certify some inputs first.")
    said = _shortfall(run, name, by_lane)
    try:
        inputs: Sequence[InputInfo] = run.inputs()
    except StoreError as error:
        inputs = []
        said.append(f"{name}: the pictures could not be read ({error.received})")
    shared: dict[tuple[float, ...] | None, list[RunMetrics]] = {}
    lanes = []
    for lane, rows in by_lane.items():
        title = f"{name} · {lane}" if len(by_lane) > 1 else name
        lanes.append(Lane(title, name, lane, run, [row for row, _ in rows], [own for _, own in rows], shared))
    return lanes, inputs, said


def _light_records(run: RunFolder) -> dict[str, list[tuple[Record, tuple[Stream, ...]]]]:
    """Lane -> (record without counts, its streams) by input id, part by part: histograms of a run may not fit."""
    found: dict[str, dict[int, tuple[Record, tuple[Stream, ...]]]] = {lane: {} for lane in run.config.lanes}

    def hear(path: Path, error: Exception) -> None:
        message = f"{path} is damaged and was left out; certify with the same --out makes it again"
        run.damaged.append(path.name)
        warnings.warn(StoreWarning(message), stacklevel=2)

    for table in read_parts(run.path / "parts", None, hear):
        for record in from_table(table):
            empty = tuple(replace(entry, cells={}) for entry in record.stages)
            light = (replace(record, stages=empty), streams_of(record))
            found.setdefault(record.lane, {}).setdefault(record.input_id, light)
    return {lane: [rows[one] for one in sorted(rows)] for lane, rows in found.items() if rows}


def _shortfall(run: RunFolder, name: str, by_lane: Mapping[str, Sequence[object]]) -> list[str]:
    """What is missing of a run that has not ended."""
    asked, there = run.config.extra.get("count"), max(len(rows) for rows in by_lane.values())
    if isinstance(asked, int) and there < asked:
        return [f"{name}: the run is not finished, {there} of {asked} inputs are there; every number is about those"]
    return []


def _log_records(log: CohenLog) -> list[Record]:
    rows: Iterable[tuple[Any, ...]] = zip(
        log.idx.tolist(),
        log.label.tolist(),
        log.predict.tolist(),
        log.radius.tolist(),
        log.seconds.tolist(),
        strict=True,
    )
    return [
        Record(
            input_id=one,
            lane="",
            label=None if label < 0 else label,
            prediction=predict,
            radius=radius,
            p_a=float("nan"),
            p_b=float("nan"),
            alpha=float("nan"),
            procedure="imported",
            sound=False,
            seed=0,
            draws=0,
            forwards=0,
            seconds=seconds,
        )
        for one, label, predict, radius, seconds in rows
    ]

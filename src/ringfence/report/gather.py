"""Reading what a report is made of: run folders and logs, part by part, with remarks on what is missing."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.analysis.metrics import RunMetrics
from ringfence.errors import StoreError
from ringfence.procedures import Given
from ringfence.record import Record
from ringfence.report.lanes import Extras, Lane, Material, procedure_of
from ringfence.report.natural import natural_answers
from ringfence.report.streams import Stream, streams_of
from ringfence.store import CohenLog, InputInfo, RunFolder, StoreWarning, read_cohen
from ringfence.store.parts import read_parts
from ringfence.store.schema import from_table

Light = tuple[Record, tuple[Stream, ...], int | None]
"""A record without counts, its streams, and PREDICT's answer where the counts give one."""


def gather(paths: Sequence[str | Path], extras: Extras | None = None) -> Material:
    """Read run folders and Cohen-style logs; one that holds no record is refused, damage becomes a remark."""
    names = short_names([str(path) for path in paths])
    lanes: list[Lane] = []
    inputs: dict[str, Sequence[InputInfo]] = {}
    remarks: list[str] = []
    for path, name in zip(paths, names, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreWarning)
            found, pictures, said = _read(Path(path), name, only=len(paths) == 1)
        remarks += [str(one.message) for one in caught if issubclass(one.category, StoreWarning)] + said
        lanes += found
        inputs[name] = pictures
    return Material(lanes, inputs, remarks, extras or Extras())


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


def _read(path: Path, name: str, only: bool) -> tuple[list[Lane], Sequence[InputInfo], list[str]]:
    """Lanes, pictures and remarks; the lanes of the only run of a page need not repeat its name."""
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
        title = name if len(by_lane) == 1 else lane if only else f"{name} · {lane}"
        records, streams, answers = zip(*rows, strict=True)
        known = None if None in answers else np.array(answers, np.int64)
        lanes.append(Lane(title, name, lane, run, records, streams, known, shared))
    return lanes, inputs, said


def _light_records(run: RunFolder) -> dict[str, list[Light]]:
    """Light records by lane and input id, read part by part: the histograms of a whole run may not fit."""
    found: dict[str, dict[int, Light]] = {lane: {} for lane in run.config.classifier.names}
    test, given = procedure_of(run.config), Given(run.config.classifier.classes, run.config.noise.sigma)

    def hear(path: Path, error: Exception) -> None:
        message = f"{path} is damaged and was left out; certify with the same --out makes it again"
        run.damaged.append(path.name)
        warnings.warn(StoreWarning(message), stacklevel=2)

    for table in read_parts(run.path / "parts", None, hear):
        records = from_table(table)
        answers = natural_answers(records, test, given)
        for place, record in enumerate(records):
            empty = tuple(replace(entry, cells={}) for entry in record.stages)
            answer = None if answers is None else int(answers[place])
            light = (replace(record, stages=empty), streams_of(record), answer)
            found.setdefault(record.lane, {}).setdefault(record.input_id, light)
    return {lane: [rows[one] for one in sorted(rows)] for lane, rows in found.items() if rows}


def _shortfall(run: RunFolder, name: str, by_lane: Mapping[str, Sequence[object]]) -> list[str]:
    """What is missing of a run that has not ended."""
    asked, there = run.config.data.count, max(len(rows) for rows in by_lane.values())
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

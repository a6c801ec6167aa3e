"""Reading what a report is made of: runs and logs part by part, and what else was named, told by its content."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.analysis.metrics import RunMetrics
from ringfence.errors import StoreError
from ringfence.procedures.replay import natural_answers
from ringfence.progress import followed
from ringfence.record import Record
from ringfence.report.lanes import Extras, Lane, Material, Stream, Training, streams_of
from ringfence.stats.norms import InNorm
from ringfence.store import InputInfo, RunFolder, StoreWarning, read_cohen
from ringfence.store.atomic import read_file, read_json, reading_errors
from ringfence.store.attack import FILE, AttackResult, is_attack, read_attack
from ringfence.store.claims import given_of, procedure_of
from ringfence.store.run import no_records
from ringfence.store.schema import from_table

_KNOWN = "Name the attack.json that ringfence attack wrote, or save what ringfence variance prints as JSON."
Light = tuple[Record, tuple[Stream, ...], int | None]
"""A record without counts, its streams, and PREDICT's answer where the counts give one."""


def load(
    paths: Sequence[str | Path],
    without_runs: bool = False,
    shown: InNorm | None = None,
    names: Mapping[str, str] | None = None,
) -> Material:
    """Read what was named: run folders and Cohen-style logs, and trainings, variance studies and attacks beside them.
    A run that holds no record is refused, damage becomes a remark.

    shown: the norm of all radii; None: the one that each run proved. names: of some paths, what they are called; the
    others are called by their last parts.
    """
    runs, extras = sort_out(paths, names)
    if not runs and not without_runs:
        rule, remedy = "must name at least one run", "Add a run folder; training logs and attacks come beside one."
        raise StoreError("RUN", rule, ", ".join(map(str, paths)) or "none", remedy)
    lanes: list[Lane] = []
    inputs: dict[str, Sequence[InputInfo]] = {}
    remarks: list[str] = []
    called = short_names([str(path) for path in runs], names)
    for path, name in followed(list(zip(runs, called, strict=True)), "reading runs"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", StoreWarning)
            found, pictures, said = _read(path, name, len(runs) == 1, shown)
        remarks += [str(one.message) for one in caught if issubclass(one.category, StoreWarning)] + said
        lanes += found
        inputs[name] = pictures
    return Material(lanes, inputs, remarks, extras)


def read_names(path: Path) -> list[str]:
    """One name per line of a text file."""
    try:
        return read_file(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise StoreError(path, "must be text in UTF-8, a name per line", error, "Save it as UTF-8.") from error


def short_names(paths: Sequence[str], given: Mapping[str, str] | None = None) -> list[str]:
    """The last parts of the paths, as many as tell them apart, unless a name is given; repeated ones are numbered."""
    parts = [Path(path).parts or (path,) for path in paths]
    names = []
    for path, own in zip(paths, parts, strict=True):
        length = 1
        while length < len(own) and sum(other[-length:] == own[-length:] for other in parts) > 1:
            length += 1
        names.append((given or {}).get(path) or "/".join(own[-length:]))
    seen: dict[str, int] = {}
    for place, name in enumerate(names):
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            names[place] = f"{name} ({seen[name]})"
    return names


def _read(path: Path, name: str, only: bool, shown: InNorm | None) -> tuple[list[Lane], Sequence[InputInfo], list[str]]:
    """Lanes, pictures and remarks; the lanes of the only run of a page need not repeat its name."""
    if path.is_file():
        log = read_cohen(path).in_norm(shown)
        return [Lane(name, name, "", log, log.records, [()] * len(log))], [], list(log.notes)
    run = RunFolder.open(path).in_norm(shown)
    by_lane = _light_records(run)
    if not by_lane:
        raise no_records(run)
    run.announce(max(len(rows) for rows in by_lane.values()))
    said = []
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
    test, given = procedure_of(run.config), given_of(run.config)

    for table in run.tables():
        records = from_table(table)
        answers = None if given is None else natural_answers(records, test, given)
        for place, record in enumerate(records):
            empty = tuple(replace(entry, cells={}) for entry in record.stages)
            answer = None if answers is None else int(answers[place])
            light = (replace(record, stages=empty), streams_of(record), answer)
            found.setdefault(record.lane, {}).setdefault(record.input_id, light)
    return {lane: [rows[one] for one in sorted(rows)] for lane, rows in found.items() if rows}


def sort_out(paths: Sequence[str | Path], names: Mapping[str, str] | None = None) -> tuple[list[Path], Extras]:
    """(runs and Cohen-style logs, everything else) of what was named."""
    runs: list[Path] = []
    training: list[Training] = []
    studies: list[tuple[str, Mapping[str, Any]]] = []
    attacks: list[tuple[str, AttackResult]] = []
    for path, name in zip(map(Path, paths), short_names([str(one) for one in paths], names), strict=True):
        if not path.exists():
            raise StoreError(path, "must be a run folder or a log", "nothing there", "Check the path.")
        logs, evidence = training_logs(path), path / FILE if path.is_dir() else path
        if logs:
            several = len(logs) > 1
            training += [
                Training(f"{name}/{log.parent.name}" if several else name, log, objectives(log)) for log in logs
            ]
        elif evidence.suffix == ".json" and evidence.is_file():
            found = read_json(evidence)
            if is_attack(found):
                attacks.append((name, read_attack(evidence, found)))
            elif is_variance_study(found) and path.is_file():
                studies.append((name, found))
            else:
                rule = "must be the result of an attack or a variance study"
                raise StoreError(evidence, rule, "other JSON", _KNOWN)
            if _holds_run(path):  # the evidence lies in the folder of the run it is about
                runs.append(path)
        else:
            runs.append(path)
    return runs, Extras(training, studies, attacks)


def training_logs(path: Path) -> list[Path]:
    """The logs of a folder that ``ringfence train`` wrote (or of one member in it), or the path itself if it is one."""
    if _holds_run(path):
        return []
    inside = [path / "log.csv", *sorted(path.glob("member-*/log.csv")), path / "joint" / "log.csv"]
    return [log for log in (inside if path.is_dir() else [path]) if _is_training_log(log)]


def objectives(log: Path) -> frozenset[str]:
    """Names of a training's objective and its base, from the config.json that lies beside or above its log."""
    names: list[str] = []
    for folder in (log.parent, log.parent.parent):
        with suppress(StoreError, KeyError, TypeError):  # without it the curves are shown all the same
            chosen = read_json(folder / "config.json")["plan"]["objective"]
            names.append(str(chosen["name"]))
            names.append(str(chosen["base"]["name"]))
    return frozenset(names)


def is_variance_study(found: object) -> bool:
    """Whether this is what ``ringfence variance --json`` printed."""
    return isinstance(found, Mapping) and {"zeta_p", "sizes"} <= found.keys()


def _holds_run(path: Path) -> bool:
    return (path / "parts").is_dir()


def _is_training_log(log: Path) -> bool:
    if not log.is_file() or log.suffix != ".csv":
        return False
    with reading_errors(log):
        head = log.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    return {"epoch", "loss"} <= set(head.strip().split(","))

"""What may be named beside runs: trainings, variance studies and attacks, recognised by their content."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ringfence.errors import StoreError
from ringfence.report.gather import short_names
from ringfence.report.lanes import Extras, Training
from ringfence.store.atomic import read_file, reading_errors
from ringfence.store.attack import FILE, AttackResult, is_attack, read_attack

_KNOWN = "Name attack.json of ringfence attack --out, or save the output of ringfence variance --json."


def sort_out(paths: Sequence[str | Path]) -> tuple[list[Path], Extras]:
    """(runs and Cohen-style logs, everything else) of what was named."""
    runs: list[Path] = []
    training: list[Training] = []
    studies: list[tuple[str, Mapping[str, Any]]] = []
    attacks: list[tuple[str, AttackResult]] = []
    for path, name in zip(map(Path, paths), short_names([str(path) for path in paths]), strict=True):
        if not path.exists():
            raise StoreError(str(path), "must be a run folder or a log", "nothing there", "Check the path.")
        logs, evidence = training_logs(path), path / FILE if path.is_dir() else path
        if logs:
            several = len(logs) > 1
            training += [
                Training(f"{name}/{log.parent.name}" if several else name, log, objectives(log)) for log in logs
            ]
        elif evidence.suffix == ".json" and evidence.is_file():
            found = _json(evidence)
            if is_attack(found):
                attacks.append((name, read_attack(evidence, found)))
            elif is_variance_study(found) and path.is_file():
                studies.append((name, found))
            else:
                rule = "must be the result of an attack or a variance study"
                raise StoreError(str(evidence), rule, "other JSON", _KNOWN)
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
            chosen = _json(folder / "config.json")["plan"]["objective"]
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


def _json(path: Path) -> Any:
    content = read_file(path)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StoreError(str(path), "must hold JSON", error, _KNOWN) from error

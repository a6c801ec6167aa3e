"""Component logs of ACES, as its authors write them: tab-separated, one row per input, -1 for abstention.

certification: ``idx label predict radius correct [unperturbed predict ...]``; selection, one file per threshold:
``idx predict radius [unperturbed predict]`` with predict 1 for the certification network and 0 for the core; core:
``idx label predict ...``. ``unperturbed predict`` holds the answer of PREDICT.
"""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringfence.errors import StoreError
from ringfence.store.atomic import read_file
from ringfence.types import ABSTAIN, FloatArray, IntArray

_THETA = re.compile(r"_((?:0|1)(?:\.\d+)?)(?:\.(?:tsv|txt|log))?$")
_NATURAL = "unperturbed predict"


@dataclass(frozen=True)
class Component:
    """One component's answers, arrays of shape (rows,); None stands for a column that the source does not have.

    idx: inputs, ascending; predict: class (selection: bit), -1 abstained; natural: the answer of PREDICT;
    target: the one radius that was tried, None where the largest was sought. alpha: how often it may fail, None where
    nobody says; sound: whether that is proved (a log's radii were rounded to nearest).
    """

    source: str
    idx: IntArray
    predict: IntArray
    radius: FloatArray | None = None
    natural: IntArray | None = None
    label: IntArray | None = None
    target: float | None = None
    alpha: float | None = None
    sound: bool = False


def read_component(path: str | Path) -> Component:
    """A component log; bad rows are refused with their line number."""
    path = Path(path)
    lines = read_file(path).decode("utf-8-sig", errors="replace").splitlines()
    header = [name.strip() for name in lines[0].split("\t")] if lines else []
    if "idx" not in header or "predict" not in header:
        rule = "must be a component log (tab-separated columns, idx and predict among them)"
        raise StoreError(str(path), rule, f"the first line {' '.join(header)[:80]!r}", "Check the file.")
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, start=1) if number > 1 and line.strip()]
    for number, row in rows:
        if len(row) != len(header):
            rule = f"must have {len(header)} columns"
            raise StoreError(f"{path}, line {number}", rule, len(row), "Mend or remove this line.")
    if not rows:
        raise StoreError(str(path), "must hold at least one row", "none", "Give a log that holds results.")

    def column(name: str, least: float, whole_numbers: bool = False) -> FloatArray:
        place, values = header.index(name), []
        for number, row in rows:
            value = _number(row[place], f"{path}, line {number}", name)
            if value < least or (whole_numbers and not (value.is_integer() and value < 2**53)):
                rule = f"{name} must be {f'at least {least:g}' if value < least else 'a whole number'}"
                raise StoreError(f"{path}, line {number}", rule, row[place], "Mend this line.")
            values.append(value)
        return np.array(values)

    def whole(name: str, least: int) -> IntArray:
        return column(name, least, whole_numbers=True).astype(np.int64)

    idx = whole("idx", 0)
    order = np.argsort(idx, kind="stable")
    twice = idx[order][1:][np.diff(idx[order]) == 0]
    if len(twice):
        raise StoreError(str(path), "every input stands once", f"idx {twice[0]} twice", "Keep one of the rows.")
    return Component(
        str(path),
        idx[order],
        whole("predict", ABSTAIN)[order],
        column("radius", 0)[order] if "radius" in header else None,
        whole(_NATURAL, ABSTAIN)[order] if _NATURAL in header else None,
        whole("label", ABSTAIN)[order] if "label" in header else None,
    )


def selection_logs(places: Sequence[str | Path]) -> dict[float, Path]:
    """Threshold -> selection log, ascending, from files, a folder, a pattern, or the common beginning of their names.

    The threshold is the number at the end of a file's name: ``..._selection_0.35``.
    """
    found: dict[float, Path] = {}
    for place in places:
        for path in _files(Path(place)):
            match = _THETA.search(path.name)
            if match is None:
                rule = "the name of a selection log ends in _THETA, a number in [0, 1]"
                raise StoreError(str(path), rule, path.name, "Rename it, e.g. run_selection_0.35.")
            theta = float(match[1])
            if not 0.0 <= theta <= 1.0:
                raise StoreError(str(path), "thetas lie in [0, 1]", theta, "Rename the file.")
            if found.setdefault(theta, path) != path:
                raise StoreError(str(path), "each theta stands once", f"{theta:g} twice", "Give one log per theta.")
    return dict(sorted(found.items()))


def _files(place: Path) -> list[Path]:
    if os.path.isfile(place):  # unlike Path's, it knows no name too long to ask about
        return [place]
    if os.path.isdir(place):
        found = [path for path in sorted(place.iterdir()) if "selection" in path.name and _THETA.search(path.name)]
    elif glob.has_magic(str(place)):
        found = [Path(name) for name in sorted(glob.glob(str(place)))]
    else:
        named = sorted(place.parent.glob(f"{glob.escape(place.name)}*")) if place.parent.is_dir() else []
        found = [path for path in named if _THETA.search(path.name)]
    if not found:
        remedy = "Give files, their folder, a pattern or the beginning of their names."
        raise StoreError(str(place), "must lead to selection logs", "nothing there", remedy)
    return found


def _number(text: str, where: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise StoreError(where, f"{name} must be a number", repr(text), "Mend or remove this line.")
    return value

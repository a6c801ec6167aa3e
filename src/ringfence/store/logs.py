"""Logs of others, tab-separated, one row per input, -1 for abstention: Cohen's, and those of ACES's components.

Cohen's are the field's common format, ``idx label predict radius correct time``. ACES's authors write, for the
certification network, ``idx label predict radius correct [unperturbed predict ...]``; for the selector, one file per
threshold, ``idx predict radius [unperturbed predict]`` with predict 1 for the certification network and 0 for the core;
for the core ``idx label predict ...``. ``unperturbed predict`` holds the answer of PREDICT.
"""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from ringfence.errors import StoreError
from ringfence.record import Record
from ringfence.stats.norms import InNorm
from ringfence.store.atomic import read_file
from ringfence.store.schema import RANGES
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray

COMMENT = "#"
"""Begins lines above the header of Cohen's logs, which become notes."""

PROVED = "l2"
"""The norm of the radii of all logs."""

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
_CLASSES, _WHOLE = 2**31, 2**53
_CLOCK = re.compile(r"(?:(\d{1,9}) days?, )?(\d{1,9}):(\d\d):(\d\d(?:\.\d+)?)")
_EXPECTED = "must be a certification log (tab-separated: idx label predict radius correct time)"
_THETA = re.compile(r"_((?:0|1)(?:\.\d+)?)(?:\.(?:tsv|txt|log))?$")
_NATURAL = "unperturbed predict"


@dataclass(frozen=True)
class CohenLog:
    """A log as columns, all of shape (rows,): idx, label (-1: none), predict (-1: abstained), radius, seconds.

    notes says what was left out or looked odd. The radii are as printed: the field rounds them to the nearest
    third digit, so some are larger than what was proved.
    """

    path: Path
    idx: IntArray
    label: IntArray
    predict: IntArray
    radius: FloatArray
    seconds: FloatArray
    notes: tuple[str, ...] = ()
    norm: str = PROVED

    @property
    def correct(self) -> BoolArray:
        """Where the prediction is the label; an abstention never is."""
        right: BoolArray = (self.predict == self.label) & (self.predict != ABSTAIN)
        return right

    def in_norm(self, shown: InNorm | None) -> CohenLog:
        """The same log with its radii in another norm."""
        if shown is None:
            return self
        return replace(self, radius=self.radius * shown.factor(PROVED), norm=shown.norm)

    @property
    def records(self) -> list[Record]:
        """Its rows, with everything that a log does not hold as unknown; radii rounded to nearest are not sound."""
        columns = (self.idx, self.label, self.predict, self.radius, self.seconds)
        return [
            Record(
                input_id=one,
                lane="",
                label=None if label < 0 else label,
                prediction=predict,
                radius=radius,
                p_a=math.nan,
                p_b=math.nan,
                alpha=math.nan,
                procedure="imported",
                sound=False,
                seed=0,
                draws=0,
                forwards=0,
                seconds=seconds,
                norm=self.norm,
            )
            for one, label, predict, radius, seconds in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def __len__(self) -> int:
        return len(self.idx)


@dataclass(frozen=True)
class Component:
    """One component's answers, arrays of shape (rows,); None stands for a column that the source does not have.

    idx: inputs, ascending; predict: class (selection: bit), -1 abstained; natural: the answer of PREDICT;
    target: the one radius that was tried, None where the largest was sought. alpha: how often it may fail, None where
    nobody says; sound: whether that is proved (a log's radii were rounded to nearest). norm: of the radii; data: digest
    of the data set, None where it is not known.
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
    norm: str = PROVED
    data: str | None = None


@dataclass(frozen=True)
class _Sheet:
    """Names of the columns, and the numbered lines below them."""

    path: Path
    names: list[str]
    rows: list[tuple[int, str]]

    def column(self, name: str, read: Callable[[str], float]) -> FloatArray:
        """What read makes of every entry (rows,); a row that it refuses, or of another length, is named."""
        found, place = [], self.names.index(name)
        for number, line in self.rows:
            fields, rule = line.split("\t"), f"must have {len(self.names)} columns"
            try:
                if len(fields) == len(self.names):
                    found.append(read(fields[place].strip()))
                    continue
            except ValueError as error:
                rule = f"{name} {error}"
            raise StoreError(f"{self.path}, line {number}", rule, repr(line), "Mend or remove this line.")
        return np.array(found, np.float64)

    def whole(self, name: str, least: int, most: int = _WHOLE) -> IntArray:
        """Whole numbers (rows,)."""
        return self.column(name, _number(least, most, whole=True)).astype(np.int64)

    def inputs(self, least: int) -> IntArray:
        """The inputs (rows,), each once."""
        if not self.rows:
            raise StoreError(self.path, "must hold at least one row", "no rows", "Give a log that holds results.")
        idx = self.whole("idx", least)
        distinct, times = np.unique(idx, return_counts=True)
        if (times > 1).any():
            received = f"idx {distinct[times > 1][0]} twice"
            raise StoreError(self.path, "every input stands once", received, "Keep one of the rows.")
        return idx


def _lines(path: Path) -> list[str]:
    return [line.rstrip("\r") for line in read_file(path).decode("utf-8-sig", errors="replace").split("\n")]


def _sheet(path: Path, lines: Sequence[str], above: int = 0) -> _Sheet:
    """The table below so many lines; empty lines at its end are none of it."""
    names = [name.strip() for name in lines[above].split("\t")] if above < len(lines) else []
    rows = [(number, line) for number, line in enumerate(lines, start=1) if number > above + 1]
    while rows and not rows[-1][1].strip():
        rows.pop()
    return _Sheet(path, names, rows)


def _number(least: float, most: float, whole: bool = False) -> Callable[[str], float]:
    """Reads a number of this range, both ends included."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("must be a number")
        if whole and not value.is_integer():
            raise ValueError("must be a whole number")
        if not least <= value <= most:
            raise ValueError(f"must be at least {least:g}" if value < least else f"must be at most {most:g}")
        return value

    return read


def _seconds(text: str) -> float:
    """Seconds from ``15.4`` or from ``H:MM:SS.ffffff``."""
    match = _CLOCK.fullmatch(text)
    if match:
        days, hours, minutes, seconds = match.groups(default="0")
        return int(days) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return _number(*RANGES["seconds"])(text)


def read_cohen(path: str | Path) -> CohenLog:
    """Read a log; a cut last line is dropped with a note, any other bad row is refused with its line number.

    Further columns, as some tools write them, are left alone.
    """
    path = Path(path)
    lines = _lines(path)
    above = list(takewhile(lambda line: line.startswith(COMMENT), lines))
    sheet = _sheet(path, lines, len(above))
    missing = [name for name in COLUMNS if name not in sheet.names]
    if missing == ["radius"]:
        remedy = "Predictions carry no certificate: give the log of certify."
        raise StoreError(path, _EXPECTED, "a prediction log, which has no radius", remedy)
    if missing:
        remedy = "Check that this is the log, with tabs between the columns and a header line."
        raise StoreError(path, _EXPECTED, f"the first line {' '.join(sheet.names)[:80]!r}", remedy)
    notes = [line.removeprefix(COMMENT).strip() for line in above]
    if sheet.rows and _is_cut(sheet, ended=sheet.rows[-1][0] < len(lines)):
        number, line = sheet.rows.pop()
        notes.append(f"line {number} is cut short and was left out: {line!r}")
    idx, radius = sheet.inputs(-_WHOLE), sheet.column("radius", _number(*RANGES["radius"]))
    label, predict = (sheet.whole(name, ABSTAIN, _CLASSES - 1) for name in ("label", "predict"))
    log = CohenLog(path, idx, label, predict, radius, sheet.column("time", _seconds))
    odd = int(np.count_nonzero(log.correct != (sheet.whole("correct", -_WHOLE) == 1)))
    if odd:
        about = "rows say of themselves that they are right or wrong against their own label; the label counts"
        notes.append(f"{odd} {about}")
    return replace(log, notes=tuple(notes))


def _is_cut(sheet: _Sheet, ended: bool) -> bool:
    """Whether the last line ends before its last column does, or may: a shortened radius still looks like one."""
    fields = sheet.rows[-1][1].split("\t")
    if ended or len(fields) != len(sheet.names):
        return len(fields) < len(sheet.names)
    try:
        _seconds(fields[-1].strip())
    except ValueError:
        return True
    return sheet.names[-1] != "time"


def read_component(path: str | Path) -> Component:
    """A component log, its rows by ascending input; bad rows are refused with their line number."""
    path = Path(path)
    sheet = _sheet(path, _lines(path))
    if "idx" not in sheet.names or "predict" not in sheet.names:
        rule = "must be a component log (tab-separated columns, idx and predict among them)"
        raise StoreError(path, rule, f"the first line {' '.join(sheet.names)[:80]!r}", "Check the file.")
    sheet = replace(sheet, rows=[row for row in sheet.rows if row[1].strip()])
    idx = sheet.inputs(0)
    order = np.argsort(idx)
    return Component(
        str(path),
        idx[order],
        sheet.whole("predict", ABSTAIN)[order],
        sheet.column("radius", _number(0, math.inf))[order] if "radius" in sheet.names else None,
        sheet.whole(_NATURAL, ABSTAIN)[order] if _NATURAL in sheet.names else None,
        sheet.whole("label", ABSTAIN)[order] if "label" in sheet.names else None,
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
                raise StoreError(path, rule, path.name, "Rename it, e.g. run_selection_0.35.")
            theta = float(match[1])
            if not 0.0 <= theta <= 1.0:
                raise StoreError(path, "thetas lie in [0, 1]", theta, "Rename the file.")
            if found.setdefault(theta, path) != path:
                raise StoreError(path, "each theta stands once", f"{theta:g} twice", "Give one log per theta.")
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
        raise StoreError(place, "must lead to selection logs", "nothing there", remedy)
    return found

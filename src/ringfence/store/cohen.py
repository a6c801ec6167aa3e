"""Cohen-style logs, the field's common format: ``idx label predict radius correct time``, tab-separated."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np

from ringfence.errors import StoreError
from ringfence.stats.norms import InNorm
from ringfence.store.atomic import read_file
from ringfence.store.schema import RANGES
from ringfence.types import ABSTAIN, BoolArray, FloatArray, IntArray

COMMENT = "#"
"""Begins lines above the header, which become notes."""

PROVED = "l2"
"""The norm of the radii of all logs."""

COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
_CLASSES = 2**31
_CLOCK = re.compile(r"(?:(\d{1,9}) days?, )?(\d{1,9}):(\d\d):(\d\d(?:\.\d+)?)")
_EXPECTED = "must be a certification log (tab-separated: idx label predict radius correct time)"


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

    def __len__(self) -> int:
        return len(self.idx)


@dataclass(frozen=True)
class _Row:
    idx: int
    label: int
    predict: int
    radius: float
    correct: int
    seconds: float


def read_cohen(path: str | Path) -> CohenLog:
    """Read a log; a cut last line is dropped with a note, any other bad row is refused with its line number."""
    path = Path(path)
    lines = read_file(path).decode("utf-8-sig", errors="replace").split("\n")
    above = list(takewhile(lambda line: line.startswith(COMMENT), lines))
    header = lines[len(above)] if len(above) < len(lines) else ""
    places = _places(path, header.rstrip("\r").split("\t"))
    body = [(number, line.rstrip("\r")) for number, line in enumerate(lines, start=1) if number > len(above) + 1]
    while body and not body[-1][1].strip():
        body.pop()
    rows: list[_Row] = []
    notes = [line.removeprefix(COMMENT).strip() for line in above]
    for number, line in body:
        last = number == body[-1][0]
        try:
            rows.append(_parse(line, places, cut=last and number == len(lines)))
        except _CutLine:
            if not last:
                raise _bad_row(path, number, line, "fewer columns than the header") from None
            notes.append(f"line {number} is cut short and was left out: {line!r}")
        except ValueError as error:
            raise _bad_row(path, number, line, str(error)) from None
    if not rows:
        raise StoreError(str(path), _EXPECTED, "no rows", "Give a log that holds results.")
    _refuse_repetition(path, rows)
    return _log(path, rows, notes)


class _CutLine(ValueError):
    """A line that ends before its last column does."""


def _places(path: Path, header: list[str]) -> dict[str, int]:
    """Column name -> place in a line; further columns, as some tools write them, are left alone."""
    names = [name.strip() for name in header]
    missing = [name for name in COLUMNS if name not in names]
    if missing == ["radius"]:
        remedy = "Predictions carry no certificate: give the log of certify."
        raise StoreError(str(path), _EXPECTED, "a prediction log, which has no radius", remedy)
    if missing:
        remedy = "Check that this is the log, with tabs between the columns and a header line."
        raise StoreError(str(path), _EXPECTED, f"the first line {' '.join(names)[:80]!r}", remedy)
    return {name: names.index(name) for name in COLUMNS} | {"": len(names)}


def _parse(line: str, places: dict[str, int], cut: bool) -> _Row:
    """One row; cut says that the line is not ended by a newline, so that its last column may be shortened."""
    fields = line.split("\t")
    if len(fields) < places[""]:
        raise _CutLine
    if len(fields) > places[""]:
        raise ValueError("more columns than the header")
    if cut and places["time"] != places[""] - 1:
        raise _CutLine  # a shortened radius or label could still look like one
    text = {name: fields[places[name]].strip() for name in COLUMNS}
    try:
        seconds = _seconds(text["time"])
    except ValueError:
        if cut:
            raise _CutLine from None
        raise
    idx, label, predict, correct = (_whole(text[name]) for name in ("idx", "label", "predict", "correct"))
    row = _Row(idx, label, predict, float(text["radius"]), correct, seconds)
    if not 0 <= row.radius <= RANGES["radius"][1]:
        raise ValueError("the radius must be a finite number that is not negative")
    if not (ABSTAIN <= row.predict < _CLASSES and -1 <= row.label < _CLASSES):
        raise ValueError(f"classes count from 0 to below {_CLASSES}, and -1 stands for none")
    return row


def _whole(text: str) -> int:
    """A whole number that an index can be."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("indices and classes have at most 64 bits")
    return number


def _seconds(text: str) -> float:
    """Seconds from ``15.4`` or from ``H:MM:SS.ffffff``."""
    match = _CLOCK.fullmatch(text)
    if match:
        days, hours, minutes, seconds = match.groups(default="0")
        return int(days) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    if ":" in text or not 0 <= float(text) <= RANGES["seconds"][1]:
        raise ValueError(f"the time {text!r} is neither seconds nor H:MM:SS")
    return float(text)


def _bad_row(path: Path, number: int, line: str, why: str) -> StoreError:
    return StoreError(f"{path}, line {number}", why, repr(line), "Mend or remove this line.")


def _refuse_repetition(path: Path, rows: list[_Row]) -> None:
    seen: set[int] = set()
    for row in rows:
        if row.idx in seen:
            raise StoreError(
                str(path), "every input stands once", f"idx {row.idx} twice", "Split it into one log per run."
            )
        seen.add(row.idx)


def _log(path: Path, rows: list[_Row], notes: list[str]) -> CohenLog:
    def integers(name: str) -> IntArray:
        return np.array([getattr(row, name) for row in rows], dtype=np.int64)

    radius = np.array([row.radius for row in rows], dtype=np.float64)
    seconds = np.array([row.seconds for row in rows], dtype=np.float64)
    log = CohenLog(path, integers("idx"), integers("label"), integers("predict"), radius, seconds)
    odd = int(np.count_nonzero(log.correct != (integers("correct") == 1)))
    if odd:
        notes.append(
            f"{odd} rows say of themselves that they are right or wrong against their own label; the label counts"
        )
    return CohenLog(path, log.idx, log.label, log.predict, radius, seconds, tuple(notes))

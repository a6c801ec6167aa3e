"""Whether records follow from their counts: every record's procedure is replayed on them, many at once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ringfence.errors import StoreError
from ringfence.mechanisms import Mechanism
from ringfence.procedures import Given, Procedure, claims
from ringfence.procedures.replay import replay
from ringfence.progress import followed
from ringfence.record import Record
from ringfence.store import RunConfig
from ringfence.store.claims import given_in, mechanisms_in, procedure_in
from ringfence.types import FORWARDS

AT_ONCE = 2048
"""Records that are recomputed together: enough for arrays, few enough to tell how far it is."""
_MOST = 2**48
"""No cell counts more: larger numbers could wrap around where they are added up."""
_NONSENSE = (ArithmeticError, ValueError, LookupError, TypeError, MemoryError, RuntimeError)
"""What mathematics may raise on numbers that nobody counted."""

_NEAR = {"radius": 1e-10, "p_a": 1e-13, "p_b": 1e-13}
"""How far numbers may be off what is recomputed, relative: logarithms and sums of NumPy differ in their last bits from
one processor to another, and next to certainty a radius by more. Bounds and radii are rounded down by 1e-9."""
_LAST_BITS = 1e-15
"""The same for numbers near 0, which may be what is left of 1."""

AS_WRITTEN = "as it was written"
"""What a file should be."""


@dataclass(frozen=True)
class Disagreement:
    """A claim that does not follow; input_id None and lane "" where it is about the folder as a whole."""

    input_id: int | None
    lane: str
    what: str
    stored: object
    recomputed: object

    @property
    def told(self) -> str:
        """In a sentence; of a file, what became of it."""
        if self.recomputed == AS_WRITTEN:
            return f"{self.what} {self.stored}"
        where = "" if self.input_id is None else f"input {self.input_id} lane {self.lane or '-'}: "
        return f"{where}{self.what} is {self.stored}, it should be {self.recomputed}"


def contradicted(config: RunConfig, records: Sequence[Record], source: str) -> list[Disagreement]:
    """Every difference between these records and what follows from their counts; source: where the settings stand."""
    return list(Expected.of(config, source).contradicted(records))


@dataclass(frozen=True)
class Expected:
    """What the settings say that every record must hold."""

    config: RunConfig
    test: Procedure
    given: Given
    also: Sequence[Mechanism]

    @classmethod
    def of(cls, config: RunConfig, source: str) -> Expected:
        """From a config, whose values may be anything that their types allow."""
        try:
            test, given, also = procedure_in(config), given_in(config), mechanisms_in(config)[1:]
        except _NONSENSE as error:
            rule, remedy = "must hold settings that a procedure can have", "Restore it from a copy."
            raise StoreError(source, rule, error, remedy) from error
        return cls(config, test, given, also)

    def contradicted(self, records: Sequence[Record]) -> Iterator[Disagreement]:
        """Differences of the records, which are read as arrays; one whose counts are nonsense is named alone."""
        yield from self._settings()
        sane = [record for record in records if not _beyond(record)]
        yield from (_nonsense(record, f"more than {_MOST}") for record in records if _beyond(record))
        each = _usual_forwards(sane)
        for start in followed(range(0, len(sane), AT_ONCE), "verifying"):
            yield from self._together(sane[start : start + AT_ONCE], each)

    def _settings(self) -> Iterator[Disagreement]:
        """What the settings themselves say wrongly of the claims: radii are read and converted by their norm."""
        norm, bound = self.given.mechanism.norm, self.given.norm_bound
        if self.config.norm != norm:
            yield Disagreement(None, "", "norm", self.config.norm, norm)
        if self.config.lift.name == "identity" and bound != 1.0:
            yield Disagreement(None, "", "lift.norm_bound", bound, 1.0)
        if self.config.lift.name != "identity" and self.config.noise.lattice is not None:
            yield Disagreement(None, "", "noise.form", self.config.noise.form, "float: lifted inputs lie on no lattice")

    def _together(self, records: Sequence[Record], each: int | None) -> Iterable[Disagreement]:
        try:
            with np.errstate(all="ignore"):
                return list(self._replayed(records, each))
        except _NONSENSE as error:
            if len(records) == 1:
                return [_nonsense(records[0], error)]
            half = len(records) // 2
            return [*self._together(records[:half], each), *self._together(records[half:], each)]

    def _replayed(self, records: Sequence[Record], each: int | None) -> Iterator[Disagreement]:
        seen = replay(self.test, self.given, records)
        for row, what, stored, wanted in seen.misfits:
            yield Disagreement(records[row].input_id, records[row].lane, what, stored, wanted)
        broken = {one.row for one in seen.misfits}
        decisions = seen.decisions
        prediction, radius, radii = claims(decisions, self.given, self.also)
        lift = self.config.lift.model_dump()
        sound = self.test.sound and lift.get("form") != "paper" and lift.get("sound", True) is True
        for row, record in enumerate(records):
            if row in broken:
                continue
            claimed: list[tuple[str, object, object]] = [
                ("prediction", record.prediction, int(prediction[row])),
                ("radius", record.radius, float(radius[row])),
                ("p_a", record.p_a, float(decisions.p_a[row])),
                ("p_b", record.p_b, float(decisions.p_b[row])),
                ("alpha", record.alpha, self.test.alpha),
                ("procedure", record.procedure, self.test.name),
                ("target", record.target, self.test.target),
                ("lift_norm", record.lift_norm, self.given.norm_bound),
                ("norm", record.norm, self.given.mechanism.norm),
                ("sound", record.sound, sound),
                ("seed", record.seed, self.config.seed),
                ("spent", dict(record.spent), dict(self.test.spent)),
                ("draws", record.draws, sum(stage.draws for stage in record.stages)),
                ("forwards", record.forwards, _forwards(record, each)),
                ("names of radii", sorted(record.radii), sorted(radii)),
                *((f"radius by {name}", record.radii.get(name), float(values[row])) for name, values in radii.items()),
            ]
            if seen.wanted[row]:
                claimed.append(("draws still wanted", 0, int(seen.wanted[row])))
            for what, stored, recomputed in claimed:
                if not _agree(what, stored, recomputed):
                    yield Disagreement(record.input_id, record.lane, what, stored, recomputed)


def _agree(what: str, stored: object, recomputed: object) -> bool:
    """Whether they are the same; of what is computed with logarithms, whether another processor may have said so."""
    near = _NEAR.get(what.partition(" by ")[0])
    if near is None or not (isinstance(stored, float) and isinstance(recomputed, float)):
        return stored == recomputed
    return math.isclose(stored, recomputed, rel_tol=near, abs_tol=_LAST_BITS)


def _nonsense(record: Record, why: object) -> Disagreement:
    return Disagreement(record.input_id, record.lane, "counts that cannot be", why, "counts of draws")


def _beyond(record: Record) -> bool:
    """Whether a count is too large to be added up."""
    return any(np.max(cells, initial=0) > _MOST for stage in record.stages for cells in stage.cells.values())


def _usual_forwards(records: Sequence[Record]) -> int | None:
    """Forwards per draw of most records: one number for the whole run, where rows do not differ in work."""
    shares = Counter(record.forwards // record.draws for record in records if record.draws > 0)
    return shares.most_common(1)[0][0] if shares else None


def _forwards(record: Record, each: int | None) -> int:
    """What the record's forwards must be: counted beside its draws, or so many for each of them."""
    if record.stages and all(FORWARDS in stage.cells for stage in record.stages):
        return sum(int(stage.cells[FORWARDS][0]) for stage in record.stages)
    return sum(stage.draws for stage in record.stages) * max(each or 1, 1)

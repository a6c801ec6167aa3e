"""Verify: replay every record's procedure on its stored counts and compare what it claims. No model needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ringfence.errors import StoreError
from ringfence.mechanisms import Mechanism
from ringfence.procedures import Given, Procedure, claims
from ringfence.procedures.replay import replay
from ringfence.record import Record
from ringfence.store import RunFolder
from ringfence.store.claimed import given_in, mechanisms_in, procedure_in


@dataclass(frozen=True)
class Disagreement:
    """A claim that its counts do not support."""

    input_id: int
    lane: str
    what: str
    stored: object
    recomputed: object


def verify(run: RunFolder) -> list[Disagreement]:
    """Every difference between the records and what their counts prove; empty when all agree."""
    config = run.config
    records = run.read()
    if config.procedure.startswith("imported"):
        rule = "must hold raw counts to be verified"
        raise StoreError(str(run.path), rule, "a run imported from a log", "The log kept no counts: re-run to verify.")
    found = list(_compare(procedure_in(config), given_in(config), records, mechanisms_in(config)[1:]))
    for record in records:
        if record.config_hash != config.digest:
            found.append(Disagreement(record.input_id, record.lane, "config_hash", record.config_hash, config.digest))
    return found


def _compare(
    test: Procedure, given: Given, records: Sequence[Record], also: Sequence[Mechanism]
) -> Iterator[Disagreement]:
    """What does not follow from the counts, record by record."""
    again = replay(test, given, records)
    for one in again.misfits:
        yield Disagreement(records[one.row].input_id, records[one.row].lane, one.what, one.stored, one.wanted)
    broken = {one.row for one in again.misfits}
    prediction, radius, radii = claims(again.decisions, given, also)
    for row, record in enumerate(records):
        if row in broken:
            continue
        claimed: list[tuple[str, object, object]] = [
            ("prediction", record.prediction, int(prediction[row])),
            ("radius", record.radius, float(radius[row])),
            ("p_a", record.p_a, float(again.decisions.p_a[row])),
            ("p_b", record.p_b, float(again.decisions.p_b[row])),
            ("alpha", record.alpha, test.alpha),
            ("procedure", record.procedure, test.name),
            ("target", record.target, test.target),
            ("lift_norm", record.lift_norm, given.norm_bound),
            ("draws", record.draws, sum(stage.draws for stage in record.stages)),
            *((f"radius by {name}", record.radii.get(name), float(values[row])) for name, values in radii.items()),
        ]
        if again.wanted[row]:
            claimed.append(("draws still wanted", 0, int(again.wanted[row])))
        for what, stored, recomputed in claimed:
            if stored != recomputed:
                yield Disagreement(record.input_id, record.lane, what, stored, recomputed)

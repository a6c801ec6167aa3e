"""Verify: replay every record's procedure on its stored counts and compare what it claims. No model needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ringfence.errors import StoreError
from ringfence.mechanisms import mechanism
from ringfence.procedures import Given, Procedure, claims, procedure
from ringfence.record import Record, StageTally
from ringfence.store import RunFolder
from ringfence.types import ABSTAIN, FORWARDS, IntArray, Tally


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
    if config.procedure.name.startswith("imported"):
        rule = "must hold raw counts to be verified"
        raise StoreError(str(run.path), rule, "a run imported from a log", "The log kept no counts: re-run to verify.")
    test = procedure(config.procedure.name, config.procedure.settings)
    given = Given(config.classifier.classes, config.noise.sigma, config.lift.norm_bound)
    found = list(_replay(test, given, records, config.mechanisms))
    for record in records:
        if record.config_hash != config.digest:
            found.append(Disagreement(record.input_id, record.lane, "config_hash", record.config_hash, config.digest))
    return found


def _replay(test: Procedure, given: Given, records: Sequence[Record], names: Sequence[str]) -> Iterator[Disagreement]:
    if not records:
        return
    names_known = sorted({name for record in records for name in record.facts})
    known = {name: np.array([r.facts.get(name, ABSTAIN) for r in records], np.int64) for name in names_known}
    state = test.start(len(records), replace(given, facts=known, replayed=True))
    longest = max(len(record.stages) for record in records)
    broken: set[int] = set()
    for step in range(longest):
        rows = np.array([i for i, r in enumerate(records) if len(r.stages) > step and i not in broken], np.int64)
        wanted = test.request(state[rows])
        for row, draws in zip(rows, wanted, strict=True):
            seen = records[row].stages[step]
            asked = (int(state["stage"][row]), int(state["drawn"][row]), int(draws))
            for name in _impossible(seen):
                broken.add(int(row))
                counted = int(np.sum(seen.cells[name]))
                what = f"{name} of request {step}"
                yield Disagreement(records[row].input_id, records[row].lane, what, counted, seen.draws)
            if (seen.stage, seen.start, seen.draws) != asked:
                broken.add(int(row))
                what = f"request {step} (stage, start, draws)"
                yield Disagreement(
                    records[row].input_id, records[row].lane, what, (seen.stage, seen.start, seen.draws), asked
                )
        rows = np.array([row for row in rows if int(row) not in broken], np.int64)
        if len(rows):
            state[rows] = test.update(state[rows], _tally(records, rows, step))
    wanted = np.where(test.may_end(state), 0, test.request(state))
    decisions = test.conclude(state)
    prediction, radius, radii = claims(decisions, [mechanism(name) for name in names], given)
    for row, record in enumerate(records):
        if row in broken:
            continue
        claimed: list[tuple[str, object, object]] = [
            ("prediction", record.prediction, int(prediction[row])),
            ("radius", record.radius, float(radius[row])),
            ("p_a", record.p_a, float(decisions.p_a[row])),
            ("p_b", record.p_b, float(decisions.p_b[row])),
            ("alpha", record.alpha, test.alpha),
            ("procedure", record.procedure, test.name),
            ("target", record.target, test.target),
            ("lift_norm", record.lift_norm, given.norm_bound),
            ("draws", record.draws, sum(stage.draws for stage in record.stages)),
            *((f"radius by {name}", record.radii.get(name), float(values[row])) for name, values in radii.items()),
        ]
        if wanted[row]:
            claimed.append(("draws still wanted", 0, int(wanted[row])))
        for what, stored, recomputed in claimed:
            if stored != recomputed:
                yield Disagreement(record.input_id, record.lane, what, stored, recomputed)


def _impossible(seen: StageTally) -> list[str]:
    """Names of cells that these draws cannot have given: a draw is one vote, and a fixed number of other cells
    (its forwards may differ from draw to draw, but there is at least one)."""
    wrong: list[str] = []
    for name, counts in seen.cells.items():
        total = int(np.sum(counts))
        fits = total >= seen.draws if name == FORWARDS else total % seen.draws == 0
        if np.min(counts) < 0 or not fits or (name == "votes" and total != seen.draws):
            wrong.append(name)
    return wrong


def _tally(records: Sequence[Record], rows: IntArray, step: int) -> Tally:
    """The counts of one request of the chosen records, as the procedure saw them."""
    stages = [records[row].stages[step] for row in rows]
    cells = {name: np.stack([np.asarray(stage.cells[name], np.int64) for stage in stages]) for name in stages[0].cells}
    return Tally(cells, np.array([stage.draws for stage in stages], np.int64))

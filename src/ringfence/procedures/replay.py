"""Replay: the one place that decides again from stored counts. No model, no draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from ringfence.errors import StoreError
from ringfence.procedures.base import Decisions, Given, Procedure, State
from ringfence.record import Record, StageTally
from ringfence.types import ABSTAIN, BINS, FORWARDS, IntArray, Tally


class Misfit(NamedTuple):
    """What is stored at one step of a record, and what its procedure would have asked for or could have counted."""

    row: int
    what: str
    stored: object
    wanted: object


@final
@dataclass(frozen=True)
class Replayed:
    """State and decisions after the stored counts, one row per record.

    misfits: steps that do not follow from those before; the replay of such a row ends there.
    wanted (rows,): draws that the procedure would still ask for although the record ends.
    """

    state: State
    decisions: Decisions
    misfits: Sequence[Misfit]
    wanted: IntArray


def replay(procedure: Procedure, given: Given, records: Sequence[Record]) -> Replayed:
    """Every record's counts shown to the procedure again, request by request, as it saw them first."""
    given = replace(given, facts=facts_of(records), replayed=True)
    state = procedure.start(len(records), given)
    widths = _widths(procedure, given, records)
    misfits = [one for row, record in enumerate(records) for one in _odd_facts(row, record, procedure, given)]
    ended = {one.row for one in misfits}
    for step in range(max((len(record.stages) for record in records), default=0)):
        rows = [row for row, one in enumerate(records) if len(one.stages) > step and row not in ended]
        for row, draws in zip(rows, procedure.request(state[rows]).tolist(), strict=True):
            asked = (int(state["stage"][row]), int(state["drawn"][row]), draws)
            found = _misfits(row, step, records[row].stages[step], asked, widths, given.num_classes)
            misfits += found
            ended |= {one.row for one in found}
        rows = [row for row in rows if row not in ended]
        if rows:
            tally = tally_of([records[row].stages[step] for row in rows], procedure.reads)
            state[rows] = procedure.update(state[rows], tally, given)
    wanted = np.where(procedure.may_end(state), 0, procedure.request(state))
    return Replayed(state, procedure.conclude(state, given), misfits, wanted)


def decided_again(procedure: Procedure, given: Given, records: Sequence[Record], source: str) -> Replayed:
    """The replay of records whose counts must follow from their procedure; source: whose they are, for the error."""
    again = replay(procedure, given, records)
    if again.misfits:
        first = again.misfits[0]
        received = f"{first.what} of input {records[first.row].input_id}: {first.stored} instead of {first.wanted}"
        raise StoreError(source, "counts must follow from the run's procedure", received, "See ringfence verify.")
    return again


def natural_answers(records: Sequence[Record], procedure: Procedure | None, given: Given) -> IntArray | None:
    """PREDICT's classes (records,), ABSTAIN where its test fails; None where it has no draws of a fixed number.

    PREDICT needs a number of draws that no outcome could change. The request after the one that chose the class is
    such a number in every procedure: the n draws of fixed sampling, the first stage, the first look. Later requests
    of adaptive procedures are not, because easy inputs stop before them; they are never used here.
    """
    counted = [counted_by_predict(record) for record in records if record.stages]
    draws = {entry.draws for entry in counted}
    if procedure is None or len(counted) != len(records) or len(draws) != 1:
        return None
    predict = procedure.predictor(draws.pop())
    if predict is None or any(name not in entry.cells for entry in counted for name in predict.reads):
        return None
    given = replace(given, facts=facts_of(records))
    state = predict.update(predict.start(len(records), given), tally_of(counted, predict.reads), given)
    return predict.conclude(state, given).prediction


def counted_by_predict(record: Record) -> StageTally:
    """The request that PREDICT reads: the one after the choice of the class, the only one where nothing was chosen."""
    return record.stages[min(1, len(record.stages) - 1)]


def facts_of(records: Sequence[Record]) -> dict[str, IntArray]:
    """What was known of each input before any noise, by name (rows,)."""
    names = sorted({name for record in records for name in record.facts})
    return {name: np.array([one.facts.get(name, ABSTAIN) for one in records], np.int64) for name in names}


def tally_of(entries: Sequence[StageTally], names: Sequence[str]) -> Tally:
    """One request's named counts of several records, as the procedure saw them."""
    cells = {name: np.stack([np.asarray(entry.cells[name], np.int64) for entry in entries]) for name in names}
    return Tally(cells, np.array([entry.draws for entry in entries], np.int64))


def _widths(procedure: Procedure, given: Given, records: Sequence[Record]) -> dict[str, int]:
    """How many cells of each name a request must have: what so many classes take, where that is known, else as the
    first."""
    first = next((one.stages[0].cells for one in records if one.stages), {})
    known = {name: np.size(cells) for name, cells in first.items() if name != FORWARDS}
    known = dict.fromkeys(procedure.reads, 0) | known
    taken = {"votes": given.num_classes + 1, "bits": 3, "scores": given.num_classes * BINS + 1}
    return {name: taken.get(name, width) for name, width in known.items()}


def _odd_facts(row: int, record: Record, procedure: Procedure, given: Given) -> Iterator[Misfit]:
    """What was known before any noise is what the procedure reads, and each of it a class."""
    if sorted(record.facts) != sorted(procedure.knows):
        yield Misfit(row, "facts", sorted(record.facts), sorted(procedure.knows))
    for name, value in record.facts.items():
        if not 0 <= value < given.num_classes:
            yield Misfit(row, f"fact {name}", value, f"one of {given.num_classes} classes")


def _misfits(
    row: int, step: int, seen: StageTally, asked: tuple[int, int, int], widths: Mapping[str, int], classes: int
) -> list[Misfit]:
    """Cells that these draws cannot have given, and a request other than the one asked for.

    A draw is one vote of each member, one bit and one score of each class; of readouts that nobody here knows a fixed
    number of cells. Its forwards may differ, but there is at least one.
    """
    found = [
        Misfit(row, f"cells of {name} of request {step}", there, width)
        for name, width in widths.items()
        if (there := np.size(seen.cells.get(name, ()))) != width
    ]
    for name, counts in seen.cells.items():
        each = _of_each_kind(name, np.asarray(counts, np.int64), classes)
        total = next((one for one in each.tolist() if one != seen.draws), int(np.sum(counts)))
        fits = total >= seen.draws if name == FORWARDS else seen.draws > 0 and total % seen.draws == 0
        if np.min(counts, initial=0) < 0 or not fits or not (each == seen.draws).all():
            found.append(Misfit(row, f"{name} of request {step}", total, seen.draws))
    stored = (seen.stage, seen.start, seen.draws)
    if stored != asked:
        found.append(Misfit(row, f"request {step} (stage, start, draws)", stored, asked))
    return found


def _of_each_kind(name: str, counts: IntArray, classes: int) -> IntArray:
    """How many draws (kinds,) the cells of each member, or of each class's scores, say that there were."""
    if name == "scores" and len(counts) == classes * BINS + 1:  # an invalid draw is one of each class
        return np.asarray(counts[:-1].reshape(classes, BINS).sum(1) + counts[-1] // classes)
    if name in ("votes", "member_votes") and len(counts) % (classes + 1) == 0:
        return np.asarray(counts.reshape(-1, classes + 1).sum(1))
    return counts.sum(keepdims=True) if name == "bits" else np.empty(0, np.int64)
